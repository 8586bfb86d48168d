; `make runtime` wrote this: clang of ziglang==0.15.1, -std=c17 -Os -g0 -Wall -Wextra -Werror -Wno-unused-command-line-argument -Xclang -disable-lifetime-markers -fno-strict-aliasing -fno-stack-protector -fno-unwind-tables -fno-asynchronous-unwind-tables -fno-sanitize=undefined
; SHA-256 of runtime.c and xla_ffi.h: 65845d0fcf14da454af0f3ed23c5691cb12903e1e97dcce79e82904547827396

%struct.anon = type { ptr, [56 x i8] }
%struct.XLA_FFI_Future_Create_Args = type { i64, ptr, ptr }
%struct.anon.0 = type { ptr, [56 x i8] }
%struct.XLA_FFI_Error_Destroy_Args = type { i64, ptr, ptr }
%struct.XLA_FFI_ThreadPool_Schedule_Args = type { i64, ptr, ptr, ptr, ptr }
%struct.XLA_FFI_ThreadPool_NumThreads_Args = type { i64, ptr, ptr, ptr }
%struct.XLA_FFI_Error_Create_Args = type { i64, ptr, ptr, i32 }
%struct.PartLine = type { %struct.Part, [120 x i8] }
%struct.Part = type { i32, i32 }
%struct.XLA_FFI_Future_SetAvailable_Args = type { i64, ptr, ptr }

@seats = internal global [16 x %struct.anon] zeroinitializer, align 64
@waiting = internal global i8 0, align 1
@__const.join.args = private unnamed_addr constant %struct.XLA_FFI_Future_Create_Args { i64 24, ptr null, ptr null }, align 8
@slots = internal global [64 x %struct.anon.0] zeroinitializer, align 64
@.str = private unnamed_addr constant [45 x i8] c"eqsat: no memory for the scratch of a kernel\00", align 1
@__const.no_memory.args = private unnamed_addr constant { i64, ptr, ptr, i32, [4 x i8] } { i64 32, ptr null, ptr @.str, i32 8, [4 x i8] zeroinitializer }, align 8

define ptr @eqsat_handle(ptr nocapture noundef %0, ptr noundef %1) local_unnamed_addr #0 {
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %4 = load ptr, ptr %3, align 8
  %5 = icmp eq ptr %4, null
  br i1 %5, label %11, label %6

6:
  %7 = getelementptr inbounds nuw i8, ptr %4, i64 24
  %8 = load ptr, ptr %7, align 8
  %9 = getelementptr inbounds nuw i8, ptr %8, i64 24
  store <2 x i32> <i32 0, i32 3>, ptr %9, align 8
  %10 = getelementptr inbounds nuw i8, ptr %8, i64 32
  store i32 0, ptr %10, align 8
  br label %56

11:
  %12 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %13 = load i32, ptr %12, align 8
  %14 = icmp eq i32 %13, 3
  br i1 %14, label %15, label %56

15:
  %16 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %17 = load i64, ptr %16, align 8
  %18 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %19 = load i64, ptr %18, align 8
  %20 = add i64 %17, 1
  %21 = add i64 %20, %19
  %22 = tail call ptr @llvm.stacksave.p0()
  %23 = alloca ptr, i64 %21, align 8
  %24 = load i64, ptr %16, align 8
  %25 = load i64, ptr %18, align 8
  %26 = icmp sgt i64 %24, 0
  br i1 %26, label %27, label %30

27:
  %28 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %29 = load ptr, ptr %28, align 8
  br label %36

30:
  %31 = icmp sgt i64 %25, 0
  br i1 %31, label %32, label %54

32:
  %33 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %34 = getelementptr ptr, ptr %23, i64 %24
  %35 = load ptr, ptr %33, align 8
  br label %45

36:
  %37 = phi i64 [ 0, %27 ], [ %43, %36 ]
  %38 = getelementptr inbounds nuw ptr, ptr %29, i64 %37
  %39 = load ptr, ptr %38, align 8
  %40 = getelementptr inbounds nuw i8, ptr %39, i64 24
  %41 = load ptr, ptr %40, align 8
  %42 = getelementptr inbounds nuw ptr, ptr %23, i64 %37
  store ptr %41, ptr %42, align 8
  %43 = add nuw nsw i64 %37, 1
  %44 = icmp eq i64 %43, %24
  br i1 %44, label %30, label %36

45:
  %46 = phi i64 [ 0, %32 ], [ %52, %45 ]
  %47 = getelementptr inbounds nuw ptr, ptr %35, i64 %46
  %48 = load ptr, ptr %47, align 8
  %49 = getelementptr inbounds nuw i8, ptr %48, i64 24
  %50 = load ptr, ptr %49, align 8
  %51 = getelementptr ptr, ptr %34, i64 %46
  store ptr %50, ptr %51, align 8
  %52 = add nuw nsw i64 %46, 1
  %53 = icmp eq i64 %52, %25
  br i1 %53, label %54, label %45

54:
  %55 = call fastcc ptr @run(ptr noundef nonnull %0, ptr noundef %1, ptr noundef nonnull %23, i1 noundef zeroext false) #10
  call void @llvm.stackrestore.p0(ptr %22)
  br label %56

56:
  %57 = phi ptr [ %55, %54 ], [ null, %11 ], [ null, %6 ]
  ret ptr %57
}

declare ptr @llvm.stacksave.p0() #1

define internal fastcc ptr @run(ptr nocapture noundef %0, ptr noundef %1, ptr noundef %2, i1 noundef zeroext %3) unnamed_addr #0 {
  %5 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %6 = alloca %struct.XLA_FFI_Future_Create_Args, align 8
  %7 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %8 = alloca %struct.XLA_FFI_ThreadPool_Schedule_Args, align 8
  %9 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %10 = alloca i64, align 8
  %11 = alloca %struct.XLA_FFI_ThreadPool_NumThreads_Args, align 8
  %12 = alloca %struct.XLA_FFI_Error_Create_Args, align 8
  %13 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %14 = load i64, ptr %13, align 8
  %15 = icmp eq i64 %14, 0
  br i1 %15, label %25, label %16

16:
  %17 = tail call fastcc ptr @take_scratch(i64 noundef %14) #10
  %18 = icmp eq ptr %17, null
  br i1 %18, label %19, label %25

19:
  %20 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %21 = load ptr, ptr %20, align 8
  call void @llvm.lifetime.start.p0(i64 32, ptr nonnull %12)
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 8 dereferenceable(32) %12, ptr noundef nonnull align 8 dereferenceable(32) @__const.no_memory.args, i64 32, i1 false)
  %22 = getelementptr inbounds nuw i8, ptr %21, i64 48
  %23 = load ptr, ptr %22, align 8
  %24 = call ptr %23(ptr noundef nonnull %12) #11
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %12)
  br label %207

25:
  %26 = phi ptr [ %17, %16 ], [ null, %4 ]
  %27 = getelementptr inbounds nuw i8, ptr %1, i64 40
  %28 = load i64, ptr %27, align 8
  %29 = icmp sgt i64 %28, 12
  %30 = select i1 %3, i1 true, i1 %29
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %10)
  call void @llvm.lifetime.start.p0(i64 32, ptr nonnull %11)
  %31 = getelementptr inbounds nuw i8, ptr %1, i64 32
  %32 = load i64, ptr %31, align 8
  %33 = icmp sgt i64 %32, 2147483647
  %34 = tail call i64 @llvm.smin.i64(i64 %28, i64 %32)
  %35 = tail call i64 @llvm.smin.i64(i64 %34, i64 64)
  %36 = select i1 %33, i64 1, i64 %35
  store i64 1, ptr %10, align 8
  %37 = icmp slt i64 %36, 2
  br i1 %37, label %65, label %38

38:
  br i1 %30, label %48, label %39

39:
  %40 = phi i64 [ %44, %39 ], [ 0, %38 ]
  %41 = getelementptr inbounds nuw [16 x %struct.anon], ptr @seats, i64 0, i64 %40
  %42 = load atomic i64, ptr %41 monotonic, align 64
  %43 = icmp eq i64 %42, ptrtoint (ptr @waiting to i64)
  %44 = add nuw nsw i64 %40, 1
  %45 = icmp eq i64 %44, 16
  %46 = select i1 %43, i1 true, i1 %45
  br i1 %46, label %47, label %39

47:
  br i1 %43, label %48, label %65

48:
  store i64 32, ptr %11, align 8
  %49 = getelementptr inbounds nuw i8, ptr %11, i64 8
  store ptr null, ptr %49, align 8
  %50 = getelementptr inbounds nuw i8, ptr %11, i64 16
  %51 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %52 = load ptr, ptr %51, align 8
  store ptr %52, ptr %50, align 8
  %53 = getelementptr inbounds nuw i8, ptr %11, i64 24
  store ptr %10, ptr %53, align 8
  %54 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %55 = load ptr, ptr %54, align 8
  %56 = getelementptr inbounds nuw i8, ptr %55, i64 144
  %57 = load ptr, ptr %56, align 8
  %58 = call ptr %57(ptr noundef nonnull %11) #11
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %9)
  %59 = icmp eq ptr %58, null
  br i1 %59, label %66, label %60

60:
  store i64 24, ptr %9, align 8
  %61 = getelementptr inbounds nuw i8, ptr %9, i64 8
  store ptr null, ptr %61, align 8
  %62 = getelementptr inbounds nuw i8, ptr %9, i64 16
  store ptr %58, ptr %62, align 8
  %63 = getelementptr inbounds nuw i8, ptr %55, i64 64
  %64 = load ptr, ptr %63, align 8
  call void %64(ptr noundef nonnull %9) #11
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %9)
  br label %65

65:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %10)
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %11)
  br label %190

66:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %9)
  %67 = load i64, ptr %10, align 8
  %68 = call i64 @llvm.smin.i64(i64 %67, i64 %36)
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %10)
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %11)
  %69 = icmp slt i64 %68, 2
  br i1 %69, label %190, label %70

70:
  call void @llvm.lifetime.start.p0(i64 40, ptr nonnull %8)
  %71 = shl i64 %68, 7
  %72 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %73 = load i64, ptr %72, align 8
  %74 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %75 = load i64, ptr %74, align 8
  %76 = add nsw i64 %75, %73
  %77 = shl i64 %76, 3
  %78 = add i64 %71, 255
  %79 = add i64 %78, %77
  %80 = and i64 %79, -128
  %81 = call align 128 ptr @aligned_alloc(i64 noundef 128, i64 noundef %80) #12
  %82 = icmp eq ptr %81, null
  br i1 %82, label %83, label %84

83:
  call void @llvm.lifetime.end.p0(i64 40, ptr nonnull %8)
  br label %190

84:
  %85 = load ptr, ptr %54, align 8
  %86 = getelementptr inbounds nuw i8, ptr %81, i64 128
  %87 = getelementptr inbounds nuw i8, ptr %86, i64 %71
  store i64 0, ptr %81, align 128
  %88 = getelementptr inbounds nuw i8, ptr %81, i64 8
  store i64 %68, ptr %88, align 8
  %89 = getelementptr inbounds nuw i8, ptr %81, i64 16
  %90 = getelementptr inbounds nuw i8, ptr %81, i64 64
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(48) %89, i8 0, i64 48, i1 false)
  store ptr %1, ptr %90, align 64
  %91 = getelementptr inbounds nuw i8, ptr %81, i64 72
  store ptr %85, ptr %91, align 8
  %92 = getelementptr inbounds nuw i8, ptr %81, i64 80
  store ptr null, ptr %92, align 16
  %93 = getelementptr inbounds nuw i8, ptr %81, i64 88
  store ptr %87, ptr %93, align 8
  %94 = getelementptr inbounds nuw i8, ptr %81, i64 96
  store i64 %68, ptr %94, align 32
  %95 = getelementptr inbounds nuw i8, ptr %81, i64 104
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(24) %95, i8 0, i64 24, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 128 %87, ptr noundef readonly align 1 %2, i64 noundef %77, i1 noundef false) #11
  %96 = load i64, ptr %31, align 8
  br label %97

97:
  %98 = phi i64 [ 0, %84 ], [ %102, %97 ]
  %99 = mul nsw i64 %98, %96
  %100 = sdiv i64 %99, %68
  %101 = trunc i64 %100 to i32
  %102 = add nuw nsw i64 %98, 1
  %103 = mul nsw i64 %102, %96
  %104 = sdiv i64 %103, %68
  %105 = trunc i64 %104 to i32
  %106 = getelementptr inbounds nuw [0 x %struct.PartLine], ptr %86, i64 0, i64 %98
  store i32 %101, ptr %106, align 128
  %107 = getelementptr inbounds nuw i8, ptr %106, i64 4
  store i32 %105, ptr %107, align 4
  %108 = icmp eq i64 %102, %68
  br i1 %108, label %109, label %97

109:
  store i64 40, ptr %8, align 8
  %110 = getelementptr inbounds nuw i8, ptr %8, i64 8
  store ptr null, ptr %110, align 8
  %111 = getelementptr inbounds nuw i8, ptr %8, i64 16
  %112 = load ptr, ptr %51, align 8
  store ptr %112, ptr %111, align 8
  %113 = getelementptr inbounds nuw i8, ptr %8, i64 24
  store ptr @task, ptr %113, align 8
  %114 = getelementptr inbounds nuw i8, ptr %8, i64 32
  store ptr %81, ptr %114, align 8
  %115 = ptrtoint ptr %81 to i64
  br label %116

116:
  %117 = phi i64 [ %68, %109 ], [ %118, %147 ]
  %118 = add nsw i64 %117, -1
  br label %119

119:
  %120 = phi i64 [ 0, %116 ], [ %128, %127 ]
  %121 = getelementptr inbounds nuw [16 x %struct.anon], ptr @seats, i64 0, i64 %120
  %122 = load atomic i64, ptr %121 monotonic, align 64
  %123 = icmp eq i64 %122, ptrtoint (ptr @waiting to i64)
  br i1 %123, label %124, label %127

124:
  %125 = cmpxchg ptr %121, i64 ptrtoint (ptr @waiting to i64), i64 %115 acq_rel acquire, align 64
  %126 = extractvalue { i64, i1 } %125, 1
  br i1 %126, label %147, label %127

127:
  %128 = add nuw nsw i64 %120, 1
  %129 = icmp eq i64 %128, 16
  br i1 %129, label %130, label %119

130:
  br i1 %30, label %131, label %143

131:
  %132 = load ptr, ptr %91, align 8
  %133 = getelementptr inbounds nuw i8, ptr %132, i64 136
  %134 = load ptr, ptr %133, align 8
  %135 = call ptr %134(ptr noundef nonnull %8) #11
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %7)
  %136 = icmp eq ptr %135, null
  br i1 %136, label %137, label %138

137:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %7)
  br label %147

138:
  store i64 24, ptr %7, align 8
  %139 = getelementptr inbounds nuw i8, ptr %7, i64 8
  store ptr null, ptr %139, align 8
  %140 = getelementptr inbounds nuw i8, ptr %7, i64 16
  store ptr %135, ptr %140, align 8
  %141 = getelementptr inbounds nuw i8, ptr %132, i64 64
  %142 = load ptr, ptr %141, align 8
  call void %142(ptr noundef nonnull %7) #11
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %7)
  br label %143

143:
  %144 = atomicrmw sub ptr %88, i64 %118 acq_rel, align 8
  %145 = icmp eq i64 %144, %118
  br i1 %145, label %146, label %149

146:
  call void @free(ptr noundef nonnull %81) #10
  br label %149

147:
  %148 = icmp sgt i64 %117, 2
  br i1 %148, label %116, label %149

149:
  %150 = call fastcc zeroext i1 @work(ptr noundef %81, ptr noundef %26) #10
  br i1 %150, label %185, label %151

151:
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %6)
  %152 = load ptr, ptr %90, align 64
  %153 = getelementptr inbounds nuw i8, ptr %152, i64 32
  %154 = load i64, ptr %153, align 8
  br label %158

155:
  %156 = add nuw nsw i64 %159, 1
  %157 = icmp eq i64 %156, 64
  br i1 %157, label %162, label %158

158:
  %159 = phi i64 [ 0, %151 ], [ %156, %155 ]
  %160 = load atomic i64, ptr %81 acquire, align 128
  %161 = icmp eq i64 %160, %154
  br i1 %161, label %184, label %155

162:
  %163 = call i32 @sched_yield() #11
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 8 dereferenceable(24) %6, ptr noundef nonnull align 8 dereferenceable(24) @__const.join.args, i64 24, i1 false)
  br i1 %3, label %164, label %165

164:
  br label %180

165:
  %166 = load ptr, ptr %91, align 8
  %167 = getelementptr inbounds nuw i8, ptr %166, i64 152
  %168 = load ptr, ptr %167, align 8
  %169 = call ptr %168(ptr noundef nonnull %6) #11
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %5)
  %170 = icmp eq ptr %169, null
  br i1 %170, label %176, label %171

171:
  store i64 24, ptr %5, align 8
  %172 = getelementptr inbounds nuw i8, ptr %5, i64 8
  store ptr null, ptr %172, align 8
  %173 = getelementptr inbounds nuw i8, ptr %5, i64 16
  store ptr %169, ptr %173, align 8
  %174 = getelementptr inbounds nuw i8, ptr %166, i64 64
  %175 = load ptr, ptr %174, align 8
  call void %175(ptr noundef nonnull %5) #11
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %5)
  br label %164

176:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %5)
  %177 = getelementptr inbounds nuw i8, ptr %6, i64 16
  %178 = load ptr, ptr %177, align 8
  store ptr %178, ptr %92, align 16
  %179 = getelementptr inbounds nuw i8, ptr %0, i64 168
  store ptr %178, ptr %179, align 8
  call fastcc void @complete(ptr noundef nonnull %81) #10
  br label %184

180:
  %181 = call i32 @sched_yield() #11
  %182 = load atomic i64, ptr %81 acquire, align 128
  %183 = icmp eq i64 %182, %154
  br i1 %183, label %184, label %180

184:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %6)
  br label %185

185:
  %186 = atomicrmw sub ptr %88, i64 1 acq_rel, align 8
  %187 = icmp eq i64 %186, 1
  br i1 %187, label %188, label %189

188:
  call void @free(ptr noundef nonnull %81) #10
  br label %189

189:
  call void @llvm.lifetime.end.p0(i64 40, ptr nonnull %8)
  br label %193

190:
  %191 = load ptr, ptr %1, align 8
  %192 = load i64, ptr %31, align 8
  call void %191(i64 noundef 0, i64 noundef %192, ptr noundef %2, ptr noundef %26) #11
  br label %193

193:
  %194 = icmp eq ptr %26, null
  br i1 %194, label %207, label %195

195:
  %196 = getelementptr inbounds i8, ptr %26, i64 -64
  %197 = ptrtoint ptr %196 to i64
  br label %201

198:
  %199 = add nuw nsw i64 %202, 1
  %200 = icmp eq i64 %199, 64
  br i1 %200, label %206, label %201

201:
  %202 = phi i64 [ 0, %195 ], [ %199, %198 ]
  %203 = getelementptr inbounds nuw [64 x %struct.anon.0], ptr @slots, i64 0, i64 %202
  %204 = cmpxchg ptr %203, i64 0, i64 %197 acq_rel monotonic, align 64
  %205 = extractvalue { i64, i1 } %204, 1
  br i1 %205, label %207, label %198

206:
  call void @free(ptr noundef nonnull %196) #10
  br label %207

207:
  %208 = phi ptr [ %24, %19 ], [ null, %193 ], [ null, %206 ], [ null, %201 ]
  ret ptr %208
}

declare void @llvm.stackrestore.p0(ptr) #1

define ptr @eqsat_step(ptr nocapture noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3) local_unnamed_addr #0 {
  %5 = getelementptr inbounds nuw i8, ptr %1, i64 40
  %6 = load i64, ptr %5, align 8
  %7 = getelementptr inbounds nuw i8, ptr %1, i64 32
  %8 = load i64, ptr %7, align 8
  %9 = icmp slt i64 %8, 2147483648
  %10 = tail call i64 @llvm.smin.i64(i64 %6, i64 %8)
  %11 = icmp sgt i64 %10, 1
  %12 = select i1 %9, i1 %11, i1 false
  br i1 %12, label %13, label %15

13:
  %14 = tail call fastcc ptr @run(ptr noundef %0, ptr noundef nonnull %1, ptr noundef %2, i1 noundef zeroext true) #10
  br label %17

15:
  %16 = load ptr, ptr %1, align 8
  tail call void %16(i64 noundef 0, i64 noundef %8, ptr noundef %2, ptr noundef %3) #11
  br label %17

17:
  %18 = phi ptr [ %14, %13 ], [ null, %15 ]
  ret ptr %18
}

define ptr @eqsat_handle_loop(ptr noundef %0, ptr nocapture noundef readonly %1) local_unnamed_addr #0 {
  %3 = alloca %struct.XLA_FFI_Error_Create_Args, align 8
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %5 = load ptr, ptr %4, align 8
  %6 = icmp eq ptr %5, null
  br i1 %6, label %12, label %7

7:
  %8 = getelementptr inbounds nuw i8, ptr %5, i64 24
  %9 = load ptr, ptr %8, align 8
  %10 = getelementptr inbounds nuw i8, ptr %9, i64 24
  store <2 x i32> <i32 0, i32 3>, ptr %10, align 8
  %11 = getelementptr inbounds nuw i8, ptr %9, i64 32
  store i32 0, ptr %11, align 8
  br label %87

12:
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %14 = load i32, ptr %13, align 8
  %15 = icmp eq i32 %14, 3
  br i1 %15, label %16, label %87

16:
  %17 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %18 = load i64, ptr %17, align 8
  %19 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %20 = load i64, ptr %19, align 8
  %21 = add i64 %18, 1
  %22 = add i64 %21, %20
  %23 = tail call ptr @llvm.stacksave.p0()
  %24 = alloca ptr, i64 %22, align 8
  %25 = load i64, ptr %17, align 8
  %26 = load i64, ptr %19, align 8
  %27 = icmp sgt i64 %25, 0
  br i1 %27, label %28, label %31

28:
  %29 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %30 = load ptr, ptr %29, align 8
  br label %37

31:
  %32 = icmp sgt i64 %26, 0
  br i1 %32, label %33, label %55

33:
  %34 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %35 = getelementptr ptr, ptr %24, i64 %25
  %36 = load ptr, ptr %34, align 8
  br label %46

37:
  %38 = phi i64 [ 0, %28 ], [ %44, %37 ]
  %39 = getelementptr inbounds nuw ptr, ptr %30, i64 %38
  %40 = load ptr, ptr %39, align 8
  %41 = getelementptr inbounds nuw i8, ptr %40, i64 24
  %42 = load ptr, ptr %41, align 8
  %43 = getelementptr inbounds nuw ptr, ptr %24, i64 %38
  store ptr %42, ptr %43, align 8
  %44 = add nuw nsw i64 %38, 1
  %45 = icmp eq i64 %44, %25
  br i1 %45, label %31, label %37

46:
  %47 = phi i64 [ 0, %33 ], [ %53, %46 ]
  %48 = getelementptr inbounds nuw ptr, ptr %36, i64 %47
  %49 = load ptr, ptr %48, align 8
  %50 = getelementptr inbounds nuw i8, ptr %49, i64 24
  %51 = load ptr, ptr %50, align 8
  %52 = getelementptr ptr, ptr %35, i64 %47
  store ptr %51, ptr %52, align 8
  %53 = add nuw nsw i64 %47, 1
  %54 = icmp eq i64 %53, %26
  br i1 %54, label %55, label %46

55:
  %56 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %57 = load i64, ptr %56, align 8
  %58 = icmp eq i64 %57, 0
  br i1 %58, label %59, label %62

59:
  %60 = load ptr, ptr %1, align 8
  %61 = call ptr %60(ptr noundef nonnull %0, ptr noundef nonnull %24, ptr noundef null) #11
  br label %85

62:
  %63 = tail call fastcc ptr @take_scratch(i64 noundef %57) #10
  %64 = icmp eq ptr %63, null
  br i1 %64, label %65, label %71

65:
  %66 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %67 = load ptr, ptr %66, align 8
  call void @llvm.lifetime.start.p0(i64 32, ptr nonnull %3)
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 8 dereferenceable(32) %3, ptr noundef nonnull align 8 dereferenceable(32) @__const.no_memory.args, i64 32, i1 false)
  %68 = getelementptr inbounds nuw i8, ptr %67, i64 48
  %69 = load ptr, ptr %68, align 8
  %70 = call ptr %69(ptr noundef nonnull %3) #11
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %3)
  br label %85

71:
  %72 = load ptr, ptr %1, align 8
  %73 = call ptr %72(ptr noundef nonnull %0, ptr noundef nonnull %24, ptr noundef nonnull %63) #11
  %74 = getelementptr inbounds i8, ptr %63, i64 -64
  %75 = ptrtoint ptr %74 to i64
  br label %79

76:
  %77 = add nuw nsw i64 %80, 1
  %78 = icmp eq i64 %77, 64
  br i1 %78, label %84, label %79

79:
  %80 = phi i64 [ 0, %71 ], [ %77, %76 ]
  %81 = getelementptr inbounds nuw [64 x %struct.anon.0], ptr @slots, i64 0, i64 %80
  %82 = cmpxchg ptr %81, i64 0, i64 %75 acq_rel monotonic, align 64
  %83 = extractvalue { i64, i1 } %82, 1
  br i1 %83, label %85, label %76

84:
  call void @free(ptr noundef nonnull %74) #10
  br label %85

85:
  %86 = phi ptr [ %70, %65 ], [ %61, %59 ], [ %73, %84 ], [ %73, %79 ]
  call void @llvm.stackrestore.p0(ptr %23)
  br label %87

87:
  %88 = phi ptr [ %86, %85 ], [ null, %12 ], [ null, %7 ]
  ret ptr %88
}

define internal fastcc ptr @take_scratch(i64 noundef range(i64 1, 0) %0) unnamed_addr #0 {
  br label %2

2:
  %3 = phi i64 [ 0, %1 ], [ %18, %17 ]
  %4 = getelementptr inbounds nuw [64 x %struct.anon.0], ptr @slots, i64 0, i64 %3
  %5 = load atomic i64, ptr %4 monotonic, align 64
  %6 = icmp eq i64 %5, 0
  br i1 %6, label %17, label %7

7:
  %8 = atomicrmw xchg ptr %4, i64 0 acq_rel, align 8
  %9 = icmp eq i64 %8, 0
  br i1 %9, label %17, label %10

10:
  %11 = inttoptr i64 %8 to ptr
  %12 = load i64, ptr %11, align 16
  %13 = icmp ult i64 %12, %0
  br i1 %13, label %16, label %14

14:
  %15 = getelementptr inbounds nuw i8, ptr %11, i64 64
  br label %31

16:
  tail call void @free(ptr noundef nonnull %11) #10
  br label %20

17:
  %18 = add nuw nsw i64 %3, 1
  %19 = icmp eq i64 %18, 64
  br i1 %19, label %20, label %2

20:
  %21 = icmp ugt i64 %0, 2097151
  %22 = select i1 %21, i64 -2097152, i64 -64
  %23 = select i1 %21, i64 2097152, i64 64
  %24 = add i64 %0, 63
  %25 = add i64 %24, %23
  %26 = and i64 %25, %22
  %27 = tail call ptr @aligned_alloc(i64 noundef %23, i64 noundef %26) #12
  call void @llvm.assume(i1 true) [ "align"(ptr %27, i64 %23) ]
  %28 = icmp eq ptr %27, null
  br i1 %28, label %31, label %29

29:
  store i64 %0, ptr %27, align 16
  %30 = getelementptr inbounds nuw i8, ptr %27, i64 64
  br label %31

31:
  %32 = phi ptr [ %15, %14 ], [ %30, %29 ], [ null, %20 ]
  ret ptr %32
}

define internal void @task(ptr noundef %0) #0 {
  %2 = icmp eq ptr %0, null
  br i1 %2, label %80, label %3

3:
  %4 = phi ptr [ %79, %78 ], [ %0, %1 ]
  %5 = getelementptr inbounds nuw i8, ptr %4, i64 64
  %6 = load ptr, ptr %5, align 16
  %7 = getelementptr inbounds nuw i8, ptr %6, i64 24
  %8 = load i64, ptr %7, align 8
  %9 = getelementptr inbounds nuw i8, ptr %4, i64 128
  %10 = getelementptr inbounds nuw i8, ptr %4, i64 96
  %11 = load i64, ptr %10, align 16
  %12 = icmp sgt i64 %11, 0
  br i1 %12, label %16, label %46

13:
  %14 = add nuw nsw i64 %17, 1
  %15 = icmp eq i64 %14, %11
  br i1 %15, label %46, label %16

16:
  %17 = phi i64 [ %14, %13 ], [ 0, %3 ]
  %18 = getelementptr inbounds nuw [0 x %struct.PartLine], ptr %9, i64 0, i64 %17
  %19 = load atomic i64, ptr %18 monotonic, align 16
  %20 = trunc i64 %19 to i32
  %21 = lshr i64 %19, 32
  %22 = trunc nuw i64 %21 to i32
  %23 = icmp ult i32 %20, %22
  br i1 %23, label %24, label %13

24:
  %25 = icmp eq i64 %8, 0
  br i1 %25, label %26, label %28

26:
  %27 = tail call fastcc zeroext i1 @work(ptr noundef %4, ptr noundef null) #10
  br i1 %27, label %45, label %46

28:
  %29 = tail call fastcc ptr @take_scratch(i64 noundef %8) #10
  %30 = icmp eq ptr %29, null
  br i1 %30, label %46, label %31

31:
  %32 = tail call fastcc zeroext i1 @work(ptr noundef %4, ptr noundef nonnull %29) #10
  %33 = getelementptr inbounds i8, ptr %29, i64 -64
  %34 = ptrtoint ptr %33 to i64
  br label %38

35:
  %36 = add nuw nsw i64 %39, 1
  %37 = icmp eq i64 %36, 64
  br i1 %37, label %43, label %38

38:
  %39 = phi i64 [ 0, %31 ], [ %36, %35 ]
  %40 = getelementptr inbounds nuw [64 x %struct.anon.0], ptr @slots, i64 0, i64 %39
  %41 = cmpxchg ptr %40, i64 0, i64 %34 acq_rel monotonic, align 64
  %42 = extractvalue { i64, i1 } %41, 1
  br i1 %42, label %44, label %35

43:
  tail call void @free(ptr noundef nonnull %33) #10
  br i1 %32, label %45, label %46

44:
  br i1 %32, label %45, label %46

45:
  tail call fastcc void @complete(ptr noundef %4) #10
  br label %46

46:
  %47 = getelementptr inbounds nuw i8, ptr %4, i64 104
  %48 = load i64, ptr %47, align 8
  %49 = icmp eq i64 %48, 0
  %50 = getelementptr inbounds nuw i8, ptr %4, i64 8
  %51 = atomicrmw sub ptr %50, i64 1 acq_rel, align 8
  %52 = icmp eq i64 %51, 1
  br i1 %52, label %53, label %54

53:
  tail call void @free(ptr noundef nonnull %4) #10
  br label %54

54:
  br i1 %49, label %80, label %58

55:
  %56 = add nuw nsw i64 %59, 1
  %57 = icmp eq i64 %56, 16
  br i1 %57, label %80, label %58

58:
  %59 = phi i64 [ %56, %55 ], [ 0, %54 ]
  %60 = getelementptr inbounds nuw [16 x %struct.anon], ptr @seats, i64 0, i64 %59
  %61 = cmpxchg ptr %60, i64 0, i64 ptrtoint (ptr @waiting to i64) acq_rel acquire, align 64
  %62 = extractvalue { i64, i1 } %61, 1
  br i1 %62, label %68, label %55

63:
  %64 = add nuw nsw i64 %69, 1
  %65 = icmp eq i64 %64, 64
  br i1 %65, label %72, label %66

66:
  %67 = phi i64 [ %64, %63 ], [ 0, %72 ]
  br label %68

68:
  %69 = phi i64 [ %67, %66 ], [ 0, %58 ]
  %70 = load atomic i64, ptr %60 acquire, align 64
  %71 = icmp eq i64 %70, ptrtoint (ptr @waiting to i64)
  br i1 %71, label %63, label %76

72:
  %73 = tail call i32 @sched_yield() #11
  %74 = cmpxchg ptr %60, i64 ptrtoint (ptr @waiting to i64), i64 0 acq_rel acquire, align 64
  %75 = extractvalue { i64, i1 } %74, 1
  br i1 %75, label %80, label %66

76:
  %77 = icmp eq i64 %70, 0
  br i1 %77, label %80, label %78

78:
  %79 = inttoptr i64 %70 to ptr
  store atomic i64 0, ptr %60 release, align 64
  br label %3

80:
  ret void
}

define internal fastcc zeroext i1 @work(ptr nocapture noundef nonnull %0, ptr noundef %1) unnamed_addr #0 {
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %4 = atomicrmw or ptr %3, i64 1 monotonic, align 8
  %5 = and i64 %4, 1
  %6 = icmp eq i64 %5, 0
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 96
  %8 = load i64, ptr %7, align 16
  br i1 %6, label %17, label %9

9:
  %10 = phi i64 [ %12, %9 ], [ 0, %2 ]
  %11 = add nsw i64 %10, 1
  %12 = srem i64 %11, %8
  %13 = shl nuw i64 1, %12
  %14 = atomicrmw or ptr %3, i64 %13 monotonic, align 8
  %15 = and i64 %14, %13
  %16 = icmp eq i64 %15, 0
  br i1 %16, label %17, label %9

17:
  %18 = phi i64 [ 0, %2 ], [ %12, %9 ]
  %19 = getelementptr inbounds nuw i8, ptr %0, i64 96
  %20 = icmp sgt i64 %8, 0
  br i1 %20, label %23, label %21

21:
  %22 = atomicrmw or ptr %0, i64 0 acq_rel, align 16
  br label %89

23:
  %24 = getelementptr inbounds nuw i8, ptr %0, i64 128
  %25 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %26 = getelementptr inbounds nuw i8, ptr %0, i64 88
  br label %27

27:
  %28 = phi i64 [ %8, %23 ], [ %77, %75 ]
  %29 = phi i64 [ 0, %23 ], [ %36, %75 ]
  %30 = phi i64 [ 0, %23 ], [ %76, %75 ]
  %31 = add nsw i64 %30, %18
  %32 = srem i64 %31, %28
  %33 = getelementptr inbounds [0 x %struct.PartLine], ptr %24, i64 0, i64 %32
  %34 = icmp eq i64 %30, 0
  br label %35

35:
  %36 = phi i64 [ %29, %27 ], [ %74, %66 ]
  %37 = load atomic i64, ptr %33 monotonic, align 8
  br label %38

38:
  %39 = phi i64 [ %37, %35 ], [ %58, %44 ]
  %40 = lshr i64 %39, 32
  %41 = trunc nuw i64 %40 to i32
  %42 = trunc i64 %39 to i32
  %43 = icmp ult i32 %42, %41
  br i1 %43, label %44, label %62

44:
  %45 = sub nuw i32 %41, %42
  %46 = add i32 %45, 1
  %47 = lshr i32 %46, 1
  %48 = add i32 %47, %42
  %49 = sub i32 %41, %47
  %50 = select i1 %34, i32 %41, i32 %49
  %51 = select i1 %34, i32 %48, i32 %42
  %52 = zext i32 %50 to i64
  %53 = shl nuw i64 %52, 32
  %54 = zext i32 %51 to i64
  %55 = or disjoint i64 %53, %54
  %56 = cmpxchg ptr %33, i64 %39, i64 %55 acq_rel monotonic, align 8
  %57 = extractvalue { i64, i1 } %56, 1
  %58 = extractvalue { i64, i1 } %56, 0
  br i1 %57, label %59, label %38

59:
  %60 = select i1 %34, i32 %42, i32 %49
  %61 = select i1 %34, i32 %48, i32 %41
  br label %62

62:
  %63 = phi i32 [ %60, %59 ], [ %42, %38 ]
  %64 = phi i32 [ %61, %59 ], [ %41, %38 ]
  %65 = icmp ult i32 %63, %64
  br i1 %65, label %66, label %75

66:
  %67 = zext i32 %63 to i64
  %68 = zext i32 %64 to i64
  %69 = load ptr, ptr %25, align 16
  %70 = load ptr, ptr %69, align 8
  %71 = load ptr, ptr %26, align 8
  tail call void %70(i64 noundef %67, i64 noundef %68, ptr noundef %71, ptr noundef %1) #11
  %72 = sub nsw i64 %68, %67
  %73 = and i64 %72, 4294967295
  %74 = add nsw i64 %73, %36
  br label %35

75:
  %76 = add nuw nsw i64 %30, 1
  %77 = load i64, ptr %19, align 16
  %78 = icmp slt i64 %76, %77
  br i1 %78, label %27, label %79

79:
  %80 = atomicrmw add ptr %0, i64 %36 acq_rel, align 16
  %81 = icmp eq i64 %36, 0
  br i1 %81, label %89, label %82

82:
  %83 = add nsw i64 %80, %36
  %84 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %85 = load ptr, ptr %84, align 16
  %86 = getelementptr inbounds nuw i8, ptr %85, i64 32
  %87 = load i64, ptr %86, align 8
  %88 = icmp eq i64 %83, %87
  br label %89

89:
  %90 = phi i1 [ false, %79 ], [ %88, %82 ], [ false, %21 ]
  ret i1 %90
}

declare noalias noundef ptr @aligned_alloc(i64 allocalign noundef, i64 noundef) local_unnamed_addr #2

declare void @llvm.memset.p0.i64(ptr nocapture writeonly, i8, i64, i1 immarg) #3

declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #4

define internal fastcc void @complete(ptr nocapture noundef nonnull %0) unnamed_addr #0 {
  %2 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %3 = alloca %struct.XLA_FFI_Future_SetAvailable_Args, align 8
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %5 = atomicrmw add ptr %4, i64 1 acq_rel, align 16
  %6 = icmp eq i64 %5, 0
  br i1 %6, label %24, label %7

7:
  store i64 24, ptr %3, align 8
  %8 = getelementptr inbounds nuw i8, ptr %3, i64 8
  store ptr null, ptr %8, align 8
  %9 = getelementptr inbounds nuw i8, ptr %3, i64 16
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %11 = load ptr, ptr %10, align 16
  store ptr %11, ptr %9, align 8
  %12 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %13 = load ptr, ptr %12, align 8
  %14 = getelementptr inbounds nuw i8, ptr %13, i64 160
  %15 = load ptr, ptr %14, align 8
  %16 = call ptr %15(ptr noundef nonnull %3) #11
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %2)
  %17 = icmp eq ptr %16, null
  br i1 %17, label %23, label %18

18:
  store i64 24, ptr %2, align 8
  %19 = getelementptr inbounds nuw i8, ptr %2, i64 8
  store ptr null, ptr %19, align 8
  %20 = getelementptr inbounds nuw i8, ptr %2, i64 16
  store ptr %16, ptr %20, align 8
  %21 = getelementptr inbounds nuw i8, ptr %13, i64 64
  %22 = load ptr, ptr %21, align 8
  call void %22(ptr noundef nonnull %2) #11
  br label %23

23:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %2)
  br label %24

24:
  ret void
}

declare i32 @sched_yield() local_unnamed_addr #5

declare void @free(ptr allocptr nocapture noundef) local_unnamed_addr #6

declare void @llvm.assume(i1 noundef) #7

declare i64 @llvm.smin.i64(i64, i64) #8

declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #9

declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #9

attributes #0 = { nounwind optsize }
attributes #1 = { mustprogress nocallback nofree nosync nounwind willreturn }
attributes #2 = { mustprogress nofree nounwind optsize willreturn allockind("alloc,uninitialized,aligned") allocsize(1) memory(inaccessiblemem: readwrite) }
attributes #3 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #4 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #5 = { optsize }
attributes #6 = { mustprogress nounwind optsize willreturn allockind("free") memory(argmem: readwrite, inaccessiblemem: readwrite) }
attributes #7 = { mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #8 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #9 = { nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #10 = { optsize }
attributes #11 = { nounwind optsize }
attributes #12 = { optsize allocsize(1) }

