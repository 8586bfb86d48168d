// A quantised residual block as ONNX importers write it in the torch dialect: 3x3 convolution with
// stride 2, relu, 1x1 convolution, both branches rounded to multiples of 1/64 by way of i8, add,
// relu; NCHW. Over 56 x 56 places the 1x1 convolution has no tile of 16 unless the places are one
// loop of 3136.
module {
  func.func @conv_qdq_residual(
      %x: !torch.vtensor<[1,64,112,112],f32>, %skipped: !torch.vtensor<[1,128,56,56],f32>,
      %spatial: !torch.vtensor<[64,64,3,3],f32>, %spatial_bias: !torch.vtensor<[64],f32>,
      %expand: !torch.vtensor<[128,64,1,1],f32>, %expand_bias: !torch.vtensor<[128],f32>)
      -> !torch.vtensor<[1,128,56,56],f32>
      attributes {torch.onnx_meta.ir_version = 8 : si64, torch.onnx_meta.opset_version = 21 : si64} {
    %zero = torch.operator "onnx.Constant"() {torch.onnx.value = dense<0> : tensor<si8>}
      : () -> !torch.vtensor<[],si8>
    %scale = torch.operator "onnx.Constant"() {torch.onnx.value = dense<1.562500e-02> : tensor<f32>}
      : () -> !torch.vtensor<[],f32>
    %conv3 = torch.operator "onnx.Conv"(%x, %spatial, %spatial_bias) {
        torch.onnx.dilations = [1 : si64, 1 : si64], torch.onnx.group = 1 : si64,
        torch.onnx.kernel_shape = [3 : si64, 3 : si64],
        torch.onnx.pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64],
        torch.onnx.strides = [2 : si64, 2 : si64]}
      : (!torch.vtensor<[1,64,112,112],f32>, !torch.vtensor<[64,64,3,3],f32>,
         !torch.vtensor<[64],f32>) -> !torch.vtensor<[1,64,56,56],f32>
    %relu3 = torch.operator "onnx.Relu"(%conv3)
      : (!torch.vtensor<[1,64,56,56],f32>) -> !torch.vtensor<[1,64,56,56],f32>
    %conv1 = torch.operator "onnx.Conv"(%relu3, %expand, %expand_bias) {
        torch.onnx.dilations = [1 : si64, 1 : si64], torch.onnx.group = 1 : si64,
        torch.onnx.kernel_shape = [1 : si64, 1 : si64],
        torch.onnx.pads = [0 : si64, 0 : si64, 0 : si64, 0 : si64],
        torch.onnx.strides = [1 : si64, 1 : si64]}
      : (!torch.vtensor<[1,64,56,56],f32>, !torch.vtensor<[128,64,1,1],f32>,
         !torch.vtensor<[128],f32>) -> !torch.vtensor<[1,128,56,56],f32>
    %q = torch.operator "onnx.QuantizeLinear"(%conv1, %scale, %zero)
      : (!torch.vtensor<[1,128,56,56],f32>, !torch.vtensor<[],f32>, !torch.vtensor<[],si8>)
      -> !torch.vtensor<[1,128,56,56],si8>
    %dq = torch.operator "onnx.DequantizeLinear"(%q, %scale, %zero)
      : (!torch.vtensor<[1,128,56,56],si8>, !torch.vtensor<[],f32>, !torch.vtensor<[],si8>)
      -> !torch.vtensor<[1,128,56,56],f32>
    %skip_q = torch.operator "onnx.QuantizeLinear"(%skipped, %scale, %zero)
      : (!torch.vtensor<[1,128,56,56],f32>, !torch.vtensor<[],f32>, !torch.vtensor<[],si8>)
      -> !torch.vtensor<[1,128,56,56],si8>
    %skip_dq = torch.operator "onnx.DequantizeLinear"(%skip_q, %scale, %zero)
      : (!torch.vtensor<[1,128,56,56],si8>, !torch.vtensor<[],f32>, !torch.vtensor<[],si8>)
      -> !torch.vtensor<[1,128,56,56],f32>
    %sum = torch.operator "onnx.Add"(%dq, %skip_dq)
      : (!torch.vtensor<[1,128,56,56],f32>, !torch.vtensor<[1,128,56,56],f32>)
      -> !torch.vtensor<[1,128,56,56],f32>
    %y = torch.operator "onnx.Relu"(%sum)
      : (!torch.vtensor<[1,128,56,56],f32>) -> !torch.vtensor<[1,128,56,56],f32>
    return %y : !torch.vtensor<[1,128,56,56],f32>
  }
}
