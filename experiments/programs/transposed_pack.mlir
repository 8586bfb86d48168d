// A transpose read three times: by a matmul, which would rather have it packed, as a result, and by
// an elementwise op. Folding it into the pack saves nothing, as it has to be computed anyway.
func.func @transposed_pack(%a: tensor<512x256xf32>, %b: tensor<256x512xf32>)
    -> (tensor<256x256xf32>, tensor<256x512xf32>, tensor<256x512xf32>) {
  %zero = arith.constant 0.0 : f32
  %wide = tensor.empty() : tensor<256x512xf32>
  %t = linalg.transpose ins(%a : tensor<512x256xf32>) outs(%wide : tensor<256x512xf32>)
    permutation = [1, 0]
  %square = tensor.empty() : tensor<256x256xf32>
  %none = linalg.fill ins(%zero : f32) outs(%square : tensor<256x256xf32>) -> tensor<256x256xf32>
  %y = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                     affine_map<(m, n, k) -> (m, n)>]
    ins(%t, %b : tensor<256x512xf32>, tensor<256x512xf32>)
    outs(%none : tensor<256x256xf32>) -> tensor<256x256xf32>
  %s = arith.addf %t, %t : tensor<256x512xf32>
  return %y, %t, %s : tensor<256x256xf32>, tensor<256x512xf32>, tensor<256x512xf32>
}
