#lhs = #iree_encoding.encoding<operand_index = 0 : index, op_type = matmul, element_types = [f32, f32, f32], user_indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iteration_sizes = [4, 5, 6]>
#rhs = #iree_encoding.encoding<operand_index = 1 : index, op_type = matmul, element_types = [f32, f32, f32], user_indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iteration_sizes = [4, 5, 6]>
#result = #iree_encoding.encoding<operand_index = 2 : index, op_type = matmul, element_types = [f32, f32, f32], user_indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iteration_sizes = [4, 5, 6]>

func.func private @twice(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @elementwise(%a: tensor<3x5xf32>, %b: tensor<3x5xf32>) -> (tensor<3x5xf32>) {
  %0 = arith.mulf %a, %b : tensor<3x5xf32>
  %1 = math.tanh %0 : tensor<3x5xf32>
  return %1 : tensor<3x5xf32>
}

func.func @matmul(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>, %c: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
  %0 = linalg.matmul ins(%a, %b : tensor<4x6xf32>, tensor<6x5xf32>)
    outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

func.func @matmul_i8(%a: tensor<4x6xi8>, %b: tensor<6x5xi8>) -> (tensor<4x5xi32>) {
  %z = arith.constant 0 : i32
  %e = tensor.empty() : tensor<4x5xi32>
  %f = linalg.fill ins(%z : i32) outs(%e : tensor<4x5xi32>) -> tensor<4x5xi32>
  %0 = linalg.matmul ins(%a, %b : tensor<4x6xi8>, tensor<6x5xi8>)
    outs(%f : tensor<4x5xi32>) -> tensor<4x5xi32>
  return %0 : tensor<4x5xi32>
}

func.func @batch_matmul(%a: tensor<2x4x6xf32>, %b: tensor<2x6x5xf32>) -> (tensor<2x4x5xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4x5xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x4x5xf32>) -> tensor<2x4x5xf32>
  %0 = linalg.batch_matmul ins(%a, %b : tensor<2x4x6xf32>, tensor<2x6x5xf32>)
    outs(%f : tensor<2x4x5xf32>) -> tensor<2x4x5xf32>
  return %0 : tensor<2x4x5xf32>
}

func.func @contract(%a: tensor<6x4xf32>, %b: tensor<5x6xf32>, %c: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
  %0 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (k, m)>,
      affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%a, %b : tensor<6x4xf32>, tensor<5x6xf32>)
    outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

func.func @mmt4d(%a: tensor<2x3x4x2xf32>, %b: tensor<2x3x8x2xf32>, %c: tensor<2x2x4x8xf32>) -> (tensor<2x2x4x8xf32>) {
  %0 = linalg.mmt4d ins(%a, %b : tensor<2x3x4x2xf32>, tensor<2x3x8x2xf32>)
    outs(%c : tensor<2x2x4x8xf32>) -> tensor<2x2x4x8xf32>
  return %0 : tensor<2x2x4x8xf32>
}

func.func @matvec(%a: tensor<4x6xf32>, %b: tensor<6xf32>, %c: tensor<4xf32>) -> (tensor<4xf32>) {
  %0 = linalg.matvec ins(%a, %b : tensor<4x6xf32>, tensor<6xf32>)
    outs(%c : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @conv_nchw(%x: tensor<1x3x9x9xf32>, %k: tensor<4x3x3x3xf32>, %b: tensor<1x4x4x4xf32>) -> (tensor<1x4x4x4xf32>) {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>,
      strides = dense<2> : vector<2xi64>}
    ins(%x, %k : tensor<1x3x9x9xf32>, tensor<4x3x3x3xf32>)
    outs(%b : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  return %0 : tensor<1x4x4x4xf32>
}

func.func @conv_nhwc_dilated(%x: tensor<1x9x9x3xf32>, %k: tensor<3x3x3x4xf32>) -> (tensor<1x5x5x4xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x5x5x4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<1x5x5x4xf32>) -> tensor<1x5x5x4xf32>
  %0 = linalg.conv_2d_nhwc_hwcf {dilations = dense<2> : vector<2xi64>,
      strides = dense<1> : vector<2xi64>}
    ins(%x, %k : tensor<1x9x9x3xf32>, tensor<3x3x3x4xf32>)
    outs(%f : tensor<1x5x5x4xf32>) -> tensor<1x5x5x4xf32>
  return %0 : tensor<1x5x5x4xf32>
}

func.func @depthwise(%x: tensor<1x6x6x4xf32>, %k: tensor<3x3x4xf32>, %c: tensor<1x4x4x4xf32>) -> (tensor<1x4x4x4xf32>) {
  %0 = linalg.depthwise_conv_2d_nhwc_hwc {dilations = dense<1> : vector<2xi64>,
      strides = dense<1> : vector<2xi64>}
    ins(%x, %k : tensor<1x6x6x4xf32>, tensor<3x3x4xf32>)
    outs(%c : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  return %0 : tensor<1x4x4x4xf32>
}

func.func @max_pool(%x: tensor<1x8x8x3xf32>) -> (tensor<1x4x4x3xf32>) {
  %low = arith.constant 0xFF800000 : f32
  %w = tensor.empty() : tensor<2x2xf32>
  %e = tensor.empty() : tensor<1x4x4x3xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<1x4x4x3xf32>) -> tensor<1x4x4x3xf32>
  %0 = linalg.pooling_nhwc_max {dilations = dense<1> : vector<2xi64>,
      strides = dense<2> : vector<2xi64>}
    ins(%x, %w : tensor<1x8x8x3xf32>, tensor<2x2xf32>)
    outs(%f : tensor<1x4x4x3xf32>) -> tensor<1x4x4x3xf32>
  return %0 : tensor<1x4x4x3xf32>
}

func.func @sum_pool(%x: tensor<1x3x8x8xf32>, %c: tensor<1x3x6x6xf32>) -> (tensor<1x3x6x6xf32>) {
  %w = tensor.empty() : tensor<3x3xf32>
  %0 = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>,
      strides = dense<1> : vector<2xi64>}
    ins(%x, %w : tensor<1x3x8x8xf32>, tensor<3x3xf32>)
    outs(%c : tensor<1x3x6x6xf32>) -> tensor<1x3x6x6xf32>
  return %0 : tensor<1x3x6x6xf32>
}

func.func @transpose(%a: tensor<2x3x4xf32>) -> (tensor<4x2x3xf32>) {
  %e = tensor.empty() : tensor<4x2x3xf32>
  %0 = linalg.transpose ins(%a : tensor<2x3x4xf32>) outs(%e : tensor<4x2x3xf32>)
    permutation = [2, 0, 1]
  return %0 : tensor<4x2x3xf32>
}

func.func @broadcast(%a: tensor<3xf32>, %b: tensor<2x3xf32>) -> (tensor<2x3xf32>) {
  %e = tensor.empty() : tensor<2x3xf32>
  %0 = linalg.broadcast ins(%a : tensor<3xf32>) outs(%e : tensor<2x3xf32>)
    dimensions = [0]
  %1 = arith.addf %0, %b : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

func.func @reduce(%a: tensor<4x6xf32>, %c: tensor<4xf32>) -> (tensor<4xf32>) {
  %0 = linalg.reduce { arith.mulf } ins(%a : tensor<4x6xf32>) outs(%c : tensor<4xf32>)
    dimensions = [1]
  return %0 : tensor<4xf32>
}

func.func @map(%a: tensor<4x6xf32>, %b: tensor<4x6xf32>) -> (tensor<4x6xf32>) {
  %e = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.map { arith.subf } ins(%a, %b : tensor<4x6xf32>, tensor<4x6xf32>)
    outs(%e : tensor<4x6xf32>)
  return %0 : tensor<4x6xf32>
}

func.func @named_elementwise(%a: tensor<4x6xf32>, %b: tensor<4x6xf32>) -> (tensor<4x6xf32>) {
  %e = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.elementwise <exp> ins(%a : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = linalg.elementwise <max_signed> ins(%0, %b : tensor<4x6xf32>, tensor<4x6xf32>)
    outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

func.func @elementwise_kind(%a: tensor<4x6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>) {
  %e = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.elementwise <add>
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>]
    ins(%a, %b : tensor<4x6xf32>, tensor<6xf32>) outs(%e : tensor<4x6xf32>)
    -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

func.func @softmax(%a: tensor<4x6xf32>) -> (tensor<4x6xf32>) {
  %e = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.softmax dimension(1) ins(%a : tensor<4x6xf32>)
    outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

func.func @strided_maps(%a: tensor<9xf32>) -> (tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i * 2 + 1)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%a : tensor<9xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %s = arith.addf %x, %x : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @reads_its_result(%a: tensor<4x3xf32>, %c: tensor<4x3xf32>) -> (tensor<4x3xf32>) {
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%a : tensor<4x3xf32>) outs(%c : tensor<4x3xf32>) {
  ^bb0(%x: f32, %o: f32):
    %s = arith.divf %x, %o : f32
    linalg.yield %s : f32
  } -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

func.func @several_results(%a: tensor<4x3xf32>, %b: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3x4xf32>) {
  %e = tensor.empty() : tensor<4x3xf32>
  %f = tensor.empty() : tensor<3x4xf32>
  %0:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (j, i)>], iterator_types = ["parallel", "parallel"]}
    ins(%a, %b : tensor<4x3xf32>, tensor<4x3xf32>)
    outs(%e, %f : tensor<4x3xf32>, tensor<3x4xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32, %p: f32):
    %s = arith.addf %x, %y : f32
    %d = arith.subf %x, %y : f32
    linalg.yield %s, %d : f32, f32
  } -> (tensor<4x3xf32>, tensor<3x4xf32>)
  return %0#0, %0#1 : tensor<4x3xf32>, tensor<3x4xf32>
}

func.func @two_reductions(%a: tensor<4x6xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %g = linalg.fill ins(%low : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %0:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
    ins(%a : tensor<4x6xf32>) outs(%f, %g : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32, %p: f32):
    %s = arith.addf %o, %x : f32
    %m = arith.maximumf %x, %p : f32
    linalg.yield %s, %m : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}

func.func @index_in_body(%a: tensor<4x3xf32>) -> (tensor<4x3xf32>) {
  %e = tensor.empty() : tensor<4x3xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%a : tensor<4x3xf32>) outs(%e : tensor<4x3xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %below = arith.cmpi uge, %i, %j : index
    %z = arith.constant -1.0 : f32
    %s = arith.select %below, %x, %z : f32
    linalg.yield %s : f32
  } -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

func.func @embedding(%t: tensor<7x4xf32>, %i: tensor<2x3xi32>) -> (tensor<2x3x4xf32>) {
  %e = tensor.empty() : tensor<2x3x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(b, s, d) -> (b, s)>,
      affine_map<(b, s, d) -> (b, s, d)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%i : tensor<2x3xi32>) outs(%e : tensor<2x3x4xf32>) {
  ^bb0(%x: i32, %o: f32):
    %r = arith.index_cast %x : i32 to index
    %d = linalg.index 2 : index
    %v = tensor.extract %t[%r, %d] : tensor<7x4xf32>
    linalg.yield %v : f32
  } -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

func.func @slices(%a: tensor<6x8xf32>) -> (tensor<4xf32>) {
  %0 = tensor.extract_slice %a[3, 1] [1, 4] [1, 2] : tensor<6x8xf32> to tensor<4xf32>
  %1 = math.absf %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}

func.func @insert(%a: tensor<2x3xf32>, %b: tensor<5x6xf32>) -> (tensor<5x6xf32>) {
  %0 = tensor.insert_slice %a into %b[1, 2] [2, 3] [1, 1]
    : tensor<2x3xf32> into tensor<5x6xf32>
  return %0 : tensor<5x6xf32>
}

func.func @pad(%a: tensor<2x3xf32>, %v: tensor<f32>) -> (tensor<5x6xf32>, tensor<3x3xf32>) {
  %z = arith.constant 1.5 : f32
  %0 = tensor.pad %a low[1, 2] high[2, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<2x3xf32> to tensor<5x6xf32>
  %s = tensor.extract %v[] : tensor<f32>
  %1 = tensor.pad %a low[1, 0] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %s : f32
  } : tensor<2x3xf32> to tensor<3x3xf32>
  return %0, %1 : tensor<5x6xf32>, tensor<3x3xf32>
}

func.func @reshapes(%a: tensor<4x6xf32>) -> (tensor<2x2x6xf32>) {
  %0 = tensor.collapse_shape %a [[0, 1]] : tensor<4x6xf32> into tensor<24xf32>
  %1 = tensor.expand_shape %0 [[0, 1, 2]] output_shape [2, 2, 6]
    : tensor<24xf32> into tensor<2x2x6xf32>
  %2 = math.floor %1 : tensor<2x2x6xf32>
  return %2 : tensor<2x2x6xf32>
}

func.func @concat(%a: tensor<4x6xf32>, %b: tensor<4x2xf32>) -> (tensor<4x8xf32>) {
  %0 = tensor.concat dim(1) %a, %b : (tensor<4x6xf32>, tensor<4x2xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

func.func @constants(%a: tensor<2x3xf32>) -> (tensor<2x3xf32>) {
  %w = arith.constant dense<[[1.0, 2.0, 3.5], [-4.0, 0.25, 6.0]]> : tensor<2x3xf32>
  %s = arith.constant dense<0.5> : tensor<2x3xf32>
  %0 = arith.mulf %a, %w : tensor<2x3xf32>
  %1 = arith.subf %0, %s : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

func.func @pack(%a: tensor<7x6xf32>) -> (tensor<3x2x2x4xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x2x2x4xf32>
  %0 = linalg.pack %a padding_value(%z : f32) outer_dims_perm = [1, 0]
    inner_dims_pos = [1, 0] inner_tiles = [2, 4] into %e
    : tensor<7x6xf32> -> tensor<3x2x2x4xf32>
  return %0 : tensor<3x2x2x4xf32>
}

func.func @unpack(%a: tensor<3x2x2x4xf32>) -> (tensor<7x6xf32>) {
  %e = tensor.empty() : tensor<7x6xf32>
  %0 = linalg.unpack %a outer_dims_perm = [1, 0] inner_dims_pos = [1, 0]
    inner_tiles = [2, 4] into %e : tensor<3x2x2x4xf32> -> tensor<7x6xf32>
  return %0 : tensor<7x6xf32>
}

func.func @relu(%a: tensor<5xf32>) -> (tensor<5xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}
    ins(%a : tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %p = arith.cmpf ugt, %x, %z : f32
    %s = arith.select %p, %x, %z : f32
    linalg.yield %s : f32
  } -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

func.func @integers(%a: tensor<6xi8>, %b: tensor<6xi8>) -> (tensor<6xi32>, tensor<6xi32>, tensor<6xi8>) {
  %0 = arith.extui %a : tensor<6xi8> to tensor<6xi32>
  %1 = arith.extsi %b : tensor<6xi8> to tensor<6xi32>
  %2 = arith.muli %0, %1 : tensor<6xi32>
  %3 = arith.minui %0, %1 : tensor<6xi32>
  %4 = arith.addi %a, %b : tensor<6xi8>
  return %2, %3, %4 : tensor<6xi32>, tensor<6xi32>, tensor<6xi8>
}

func.func @casts(%a: tensor<6xf32>) -> (tensor<6xi32>, tensor<6xf32>) {
  %0 = arith.fptosi %a : tensor<6xf32> to tensor<6xi32>
  %1 = arith.sitofp %0 : tensor<6xi32> to tensor<6xf32>
  return %0, %1 : tensor<6xi32>, tensor<6xf32>
}

func.func @scalars(%a: tensor<4xf32>, %s: f32) -> (tensor<4xf32>) {
  %two = arith.constant 2.0 : f32
  %0 = arith.mulf %s, %two : f32
  %e = tensor.empty() : tensor<4xf32>
  %t = linalg.fill ins(%0 : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %1 = arith.addf %a, %t : tensor<4xf32>
  return %1 : tensor<4xf32>
}

func.func @quantise(%a: tensor<6xf32>) -> (tensor<6xi8>, tensor<6xf32>) {
  %scale = arith.constant 0.25 : f32
  %e = tensor.empty() : tensor<6xi8>
  %0 = iree_linalg_ext.quantize_affine <indexing_maps = [affine_map<(i) -> (i)>,
      affine_map<(i) -> ()>, affine_map<(i) -> (i)>], quant_min = -128, quant_max = 127>
    ins(%a, %scale : tensor<6xf32>, f32) outs(%e : tensor<6xi8>) -> tensor<6xi8>
  %g = tensor.empty() : tensor<6xf32>
  %1 = iree_linalg_ext.dequantize_affine <indexing_maps = [affine_map<(i) -> (i)>,
      affine_map<(i) -> ()>, affine_map<(i) -> (i)>], quant_min = -128, quant_max = 127>
    ins(%0, %scale : tensor<6xi8>, f32) outs(%g : tensor<6xf32>) -> tensor<6xf32>
  return %0, %1 : tensor<6xi8>, tensor<6xf32>
}

func.func @calls(%a: tensor<4xf32>) -> (tensor<4xf32>) {
  %0 = func.call @twice(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @twice(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

func.func @dynamic_casts(%a: tensor<4x6xf32>) -> (tensor<4x6xf32>) {
  %c1 = arith.constant 1 : index
  %d = tensor.cast %a : tensor<4x6xf32> to tensor<?x?xf32>
  %n = tensor.dim %d, %c1 : tensor<?x?xf32>
  %m = affine.apply affine_map<()[s] -> (s - 2)>()[%n]
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %0 = linalg.elementwise <exp> ins(%d : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = tensor.cast %0 : tensor<?x?xf32> to tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

func.func @encoded(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>) -> (tensor<4x5xf32>) {
  %z = arith.constant 0.0 : f32
  %0 = iree_encoding.set_encoding %a : tensor<4x6xf32> -> tensor<4x6xf32, #lhs>
  %1 = iree_encoding.set_encoding %b : tensor<6x5xf32> -> tensor<6x5xf32, #rhs>
  %e = tensor.empty() : tensor<4x5xf32, #result>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4x5xf32, #result>)
    -> tensor<4x5xf32, #result>
  %2 = linalg.matmul ins(%0, %1 : tensor<4x6xf32, #lhs>, tensor<6x5xf32, #rhs>)
    outs(%f : tensor<4x5xf32, #result>) -> tensor<4x5xf32, #result>
  %3 = iree_encoding.unset_encoding %2 : tensor<4x5xf32, #result> -> tensor<4x5xf32>
  return %3 : tensor<4x5xf32>
}
