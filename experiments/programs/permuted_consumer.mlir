// A matmul whose only reader adds a bias and transposes: whether they may share a dispatch is the
// target's `fusion.index_relation`. The shapes are those of BERT-like encoders.
func.func @permuted_consumer(%a: tensor<128x384xf32>, %w: tensor<384x384xf32>,
                             %bias: tensor<384xf32>) -> tensor<384x128xf32> {
  %zero = arith.constant 0.0 : f32
  %into = tensor.empty() : tensor<128x384xf32>
  %none = linalg.fill ins(%zero : f32) outs(%into : tensor<128x384xf32>) -> tensor<128x384xf32>
  %y = linalg.matmul ins(%a, %w : tensor<128x384xf32>, tensor<384x384xf32>)
    outs(%none : tensor<128x384xf32>) -> tensor<128x384xf32>
  %turned = tensor.empty() : tensor<384x128xf32>
  %r = linalg.generic {
    indexing_maps = [affine_map<(n, m) -> (m, n)>, affine_map<(n, m) -> (n)>,
                     affine_map<(n, m) -> (n, m)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%y, %bias : tensor<128x384xf32>, tensor<384xf32>) outs(%turned : tensor<384x128xf32>) {
  ^bb0(%x: f32, %b: f32, %out: f32):
    %sum = arith.addf %x, %b : f32
    linalg.yield %sum : f32
  } -> tensor<384x128xf32>
  return %r : tensor<384x128xf32>
}
