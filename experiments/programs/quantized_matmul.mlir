// A quantised matmul of unknown depth whose operands carry requested layouts. The result is 3 x 5:
// the types only learn it from `tensor.empty`, and a `tensor.cast` must not cost an encoding.
#lhs_map = affine_map<(m, n, k) -> (m, k)>
#rhs_map = affine_map<(m, n, k) -> (k, n)>
#result_map = affine_map<(m, n, k) -> (m, n)>
#lhs = #iree_encoding.encoding<operand_index = 0 : index, op_type = matmul,
  element_types = [i8, i8, i32], user_indexing_maps = [#lhs_map, #rhs_map, #result_map]>
#rhs = #iree_encoding.encoding<operand_index = 1 : index, op_type = matmul,
  element_types = [i8, i8, i32], user_indexing_maps = [#lhs_map, #rhs_map, #result_map]>
#result = #iree_encoding.encoding<operand_index = 2 : index, op_type = matmul,
  element_types = [i8, i8, i32], user_indexing_maps = [#lhs_map, #rhs_map, #result_map]>
func.func @quantized_matmul(%a: tensor<?x?xi8>, %b: tensor<?x?xi8>) -> tensor<3x5xi32> {
  %zero = arith.constant 0 : i32
  %rows = arith.constant 3 : index
  %columns = arith.constant 5 : index
  %l = iree_encoding.set_encoding %a : tensor<?x?xi8> -> tensor<?x?xi8, #lhs>
  %r = iree_encoding.set_encoding %b : tensor<?x?xi8> -> tensor<?x?xi8, #rhs>
  %into = tensor.empty(%rows, %columns) : tensor<?x?xi32, #result>
  %none = linalg.fill ins(%zero : i32) outs(%into : tensor<?x?xi32, #result>)
    -> tensor<?x?xi32, #result>
  %c = linalg.matmul ins(%l, %r : tensor<?x?xi8, #lhs>, tensor<?x?xi8, #rhs>)
    outs(%none : tensor<?x?xi32, #result>) -> tensor<?x?xi32, #result>
  %y = iree_encoding.unset_encoding %c : tensor<?x?xi32, #result> -> tensor<?x?xi32>{%rows, %columns}
  %known = tensor.cast %y : tensor<?x?xi32> to tensor<3x5xi32>
  return %known : tensor<3x5xi32>
}
