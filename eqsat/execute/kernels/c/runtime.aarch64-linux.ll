; `make runtime` wrote this: clang of ziglang==0.15.1, -std=c17 -Os -g0 -Wall -Wextra -Werror -Wno-unused-command-line-argument -Xclang -disable-lifetime-markers -fno-strict-aliasing -fno-stack-protector -fno-unwind-tables -fno-asynchronous-unwind-tables -fno-sanitize=undefined
; SHA-256 of runtime.c and xla_ffi.h: 65845d0fcf14da454af0f3ed23c5691cb12903e1e97dcce79e82904547827396

%struct.anon = type { ptr, [56 x i8] }
%struct.XLA_FFI_Future_Create_Args = type { i64, ptr, ptr }
%struct.anon.0 = type { ptr, [56 x i8] }
%struct.XLA_FFI_Error_Destroy_Args = type { i64, ptr, ptr }
%struct.timespec = type { i64, i64 }
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
  %55 = call fastcc ptr @run(ptr noundef nonnull %0, ptr noundef %1, ptr noundef nonnull %23, i1 noundef false) #9
  call void @llvm.stackrestore.p0(ptr %22)
  br label %56

56:
  %57 = phi ptr [ %55, %54 ], [ null, %11 ], [ null, %6 ]
  ret ptr %57
}

declare ptr @llvm.stacksave.p0() #1

define internal fastcc ptr @run(ptr nocapture noundef %0, ptr noundef %1, ptr noundef %2, i1 noundef %3) unnamed_addr #0 {
  %5 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %6 = alloca %struct.timespec, align 8
  %7 = alloca %struct.timespec, align 8
  %8 = alloca %struct.XLA_FFI_Future_Create_Args, align 8
  %9 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %10 = alloca %struct.XLA_FFI_ThreadPool_Schedule_Args, align 8
  %11 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %12 = alloca i64, align 8
  %13 = alloca %struct.XLA_FFI_ThreadPool_NumThreads_Args, align 8
  %14 = alloca %struct.XLA_FFI_Error_Create_Args, align 8
  %15 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %16 = load i64, ptr %15, align 8
  %17 = icmp eq i64 %16, 0
  br i1 %17, label %27, label %18

18:
  %19 = tail call fastcc ptr @take_scratch(i64 noundef %16) #9
  %20 = icmp eq ptr %19, null
  br i1 %20, label %21, label %27

21:
  %22 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %23 = load ptr, ptr %22, align 8
  call void @llvm.lifetime.start.p0(i64 32, ptr nonnull %14)
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 8 dereferenceable(32) %14, ptr noundef nonnull align 8 dereferenceable(32) @__const.no_memory.args, i64 32, i1 false)
  %24 = getelementptr inbounds nuw i8, ptr %23, i64 48
  %25 = load ptr, ptr %24, align 8
  %26 = call ptr %25(ptr noundef nonnull %14) #10
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %14)
  br label %216

27:
  %28 = phi ptr [ %19, %18 ], [ null, %4 ]
  %29 = getelementptr inbounds nuw i8, ptr %1, i64 40
  %30 = load i64, ptr %29, align 8
  %31 = icmp sgt i64 %30, 12
  %32 = select i1 %3, i1 true, i1 %31
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %12)
  call void @llvm.lifetime.start.p0(i64 32, ptr nonnull %13)
  %33 = getelementptr inbounds nuw i8, ptr %1, i64 32
  %34 = load i64, ptr %33, align 8
  %35 = icmp sgt i64 %34, 2147483647
  %36 = tail call i64 @llvm.smin.i64(i64 %30, i64 %34)
  %37 = tail call i64 @llvm.smin.i64(i64 %36, i64 64)
  %38 = select i1 %35, i64 1, i64 %37
  store i64 1, ptr %12, align 8
  %39 = icmp slt i64 %38, 2
  br i1 %39, label %67, label %40

40:
  br i1 %32, label %50, label %41

41:
  %42 = phi i64 [ %46, %41 ], [ 0, %40 ]
  %43 = getelementptr inbounds nuw [16 x %struct.anon], ptr @seats, i64 0, i64 %42
  %44 = load atomic i64, ptr %43 monotonic, align 64
  %45 = icmp eq i64 %44, ptrtoint (ptr @waiting to i64)
  %46 = add nuw nsw i64 %42, 1
  %47 = icmp eq i64 %46, 16
  %48 = select i1 %45, i1 true, i1 %47
  br i1 %48, label %49, label %41

49:
  br i1 %45, label %50, label %67

50:
  store i64 32, ptr %13, align 8
  %51 = getelementptr inbounds nuw i8, ptr %13, i64 8
  store ptr null, ptr %51, align 8
  %52 = getelementptr inbounds nuw i8, ptr %13, i64 16
  %53 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %54 = load ptr, ptr %53, align 8
  store ptr %54, ptr %52, align 8
  %55 = getelementptr inbounds nuw i8, ptr %13, i64 24
  store ptr %12, ptr %55, align 8
  %56 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %57 = load ptr, ptr %56, align 8
  %58 = getelementptr inbounds nuw i8, ptr %57, i64 144
  %59 = load ptr, ptr %58, align 8
  %60 = call ptr %59(ptr noundef nonnull %13) #10
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %11)
  %61 = icmp eq ptr %60, null
  br i1 %61, label %68, label %62

62:
  store i64 24, ptr %11, align 8
  %63 = getelementptr inbounds nuw i8, ptr %11, i64 8
  store ptr null, ptr %63, align 8
  %64 = getelementptr inbounds nuw i8, ptr %11, i64 16
  store ptr %60, ptr %64, align 8
  %65 = getelementptr inbounds nuw i8, ptr %57, i64 64
  %66 = load ptr, ptr %65, align 8
  call void %66(ptr noundef nonnull %11) #10
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %11)
  br label %67

67:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %12)
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %13)
  br label %212

68:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %11)
  %69 = load i64, ptr %12, align 8
  %70 = call i64 @llvm.smin.i64(i64 %69, i64 %38)
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %12)
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %13)
  %71 = icmp slt i64 %70, 2
  br i1 %71, label %212, label %72

72:
  call void @llvm.lifetime.start.p0(i64 40, ptr nonnull %10)
  %73 = shl i64 %70, 7
  %74 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %75 = load i64, ptr %74, align 8
  %76 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %77 = load i64, ptr %76, align 8
  %78 = add nsw i64 %77, %75
  %79 = shl i64 %78, 3
  %80 = add i64 %73, 255
  %81 = add i64 %80, %79
  %82 = and i64 %81, -128
  %83 = call noalias align 128 ptr @aligned_alloc(i64 noundef 128, i64 noundef %82) #11
  %84 = icmp eq ptr %83, null
  br i1 %84, label %85, label %86

85:
  call void @llvm.lifetime.end.p0(i64 40, ptr nonnull %10)
  br label %212

86:
  %87 = load ptr, ptr %56, align 8
  %88 = getelementptr inbounds nuw i8, ptr %83, i64 128
  %89 = getelementptr inbounds nuw i8, ptr %88, i64 %73
  %90 = call i32 @sched_getcpu() #10
  %91 = call i32 @llvm.smax.i32(i32 %90, i32 0)
  %92 = zext nneg i32 %91 to i64
  store i64 0, ptr %83, align 128
  %93 = getelementptr inbounds nuw i8, ptr %83, i64 8
  store i64 %70, ptr %93, align 8
  %94 = getelementptr inbounds nuw i8, ptr %83, i64 16
  %95 = getelementptr inbounds nuw i8, ptr %83, i64 64
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(48) %94, i8 0, i64 48, i1 false)
  store ptr %1, ptr %95, align 64
  %96 = getelementptr inbounds nuw i8, ptr %83, i64 72
  store ptr %87, ptr %96, align 8
  %97 = getelementptr inbounds nuw i8, ptr %83, i64 80
  store ptr null, ptr %97, align 16
  %98 = getelementptr inbounds nuw i8, ptr %83, i64 88
  store ptr %89, ptr %98, align 8
  %99 = getelementptr inbounds nuw i8, ptr %83, i64 96
  store i64 %70, ptr %99, align 32
  %100 = getelementptr inbounds nuw i8, ptr %83, i64 104
  store i64 %92, ptr %100, align 8
  %101 = getelementptr inbounds nuw i8, ptr %83, i64 112
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(16) %101, i8 0, i64 16, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr nonnull align 128 %89, ptr readonly align 8 %2, i64 %79, i1 false)
  %102 = load i64, ptr %33, align 8
  br label %103

103:
  %104 = phi i64 [ 0, %86 ], [ %108, %103 ]
  %105 = mul nsw i64 %104, %102
  %106 = sdiv i64 %105, %70
  %107 = trunc i64 %106 to i32
  %108 = add nuw nsw i64 %104, 1
  %109 = mul nsw i64 %108, %102
  %110 = sdiv i64 %109, %70
  %111 = trunc i64 %110 to i32
  %112 = getelementptr inbounds nuw [0 x %struct.PartLine], ptr %88, i64 0, i64 %104
  store i32 %107, ptr %112, align 128
  %113 = getelementptr inbounds nuw i8, ptr %112, i64 4
  store i32 %111, ptr %113, align 4
  %114 = icmp eq i64 %108, %70
  br i1 %114, label %115, label %103

115:
  store i64 40, ptr %10, align 8
  %116 = getelementptr inbounds nuw i8, ptr %10, i64 8
  store ptr null, ptr %116, align 8
  %117 = getelementptr inbounds nuw i8, ptr %10, i64 16
  %118 = load ptr, ptr %53, align 8
  store ptr %118, ptr %117, align 8
  %119 = getelementptr inbounds nuw i8, ptr %10, i64 24
  store ptr @task, ptr %119, align 8
  %120 = getelementptr inbounds nuw i8, ptr %10, i64 32
  store ptr %83, ptr %120, align 8
  %121 = ptrtoint ptr %83 to i64
  br label %122

122:
  %123 = phi i64 [ %70, %115 ], [ %124, %153 ]
  %124 = add nsw i64 %123, -1
  br label %125

125:
  %126 = phi i64 [ 0, %122 ], [ %134, %133 ]
  %127 = getelementptr inbounds nuw [16 x %struct.anon], ptr @seats, i64 0, i64 %126
  %128 = load atomic i64, ptr %127 monotonic, align 64
  %129 = icmp eq i64 %128, ptrtoint (ptr @waiting to i64)
  br i1 %129, label %130, label %133

130:
  %131 = cmpxchg ptr %127, i64 ptrtoint (ptr @waiting to i64), i64 %121 acq_rel acquire, align 64
  %132 = extractvalue { i64, i1 } %131, 1
  br i1 %132, label %153, label %133

133:
  %134 = add nuw nsw i64 %126, 1
  %135 = icmp eq i64 %134, 16
  br i1 %135, label %136, label %125

136:
  br i1 %32, label %137, label %149

137:
  %138 = load ptr, ptr %96, align 8
  %139 = getelementptr inbounds nuw i8, ptr %138, i64 136
  %140 = load ptr, ptr %139, align 8
  %141 = call ptr %140(ptr noundef nonnull %10) #10
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %9)
  %142 = icmp eq ptr %141, null
  br i1 %142, label %143, label %144

143:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %9)
  br label %153

144:
  store i64 24, ptr %9, align 8
  %145 = getelementptr inbounds nuw i8, ptr %9, i64 8
  store ptr null, ptr %145, align 8
  %146 = getelementptr inbounds nuw i8, ptr %9, i64 16
  store ptr %141, ptr %146, align 8
  %147 = getelementptr inbounds nuw i8, ptr %138, i64 64
  %148 = load ptr, ptr %147, align 8
  call void %148(ptr noundef nonnull %9) #10
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %9)
  br label %149

149:
  %150 = atomicrmw sub ptr %93, i64 %124 acq_rel, align 8
  %151 = icmp eq i64 %150, %124
  br i1 %151, label %152, label %155

152:
  call void @free(ptr noundef nonnull %83) #10
  br label %155

153:
  %154 = icmp sgt i64 %123, 2
  br i1 %154, label %122, label %155

155:
  %156 = call fastcc i1 @work(ptr noundef %83, ptr noundef %28) #9
  br i1 %156, label %207, label %157

157:
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %8)
  %158 = load ptr, ptr %95, align 64
  %159 = getelementptr inbounds nuw i8, ptr %158, i64 32
  %160 = load i64, ptr %159, align 8
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %7)
  %161 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %7) #10
  %162 = load i64, ptr %7, align 8
  %163 = getelementptr inbounds nuw i8, ptr %7, i64 8
  %164 = load i64, ptr %163, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %7)
  %165 = getelementptr inbounds nuw i8, ptr %6, i64 8
  br label %171

166:
  %167 = add nuw nsw i64 %172, 1
  %168 = icmp eq i64 %167, 64
  br i1 %168, label %175, label %169

169:
  %170 = phi i64 [ %167, %166 ], [ 0, %175 ]
  br label %171

171:
  %172 = phi i64 [ 0, %157 ], [ %170, %169 ]
  %173 = load atomic i64, ptr %83 acquire, align 128
  %174 = icmp eq i64 %173, %160
  br i1 %174, label %206, label %166

175:
  %176 = call i32 @sched_yield() #10
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %6)
  %177 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %6) #10
  %178 = load i64, ptr %6, align 8
  %179 = load i64, ptr %165, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %6)
  %180 = sub i64 %178, %162
  %181 = mul i64 %180, 1000000000
  %182 = sub i64 %179, %164
  %183 = add i64 %182, %181
  %184 = icmp slt i64 %183, 50000
  br i1 %184, label %169, label %185

185:
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 8 dereferenceable(24) %8, ptr noundef nonnull align 8 dereferenceable(24) @__const.join.args, i64 24, i1 false)
  br i1 %3, label %186, label %187

186:
  br label %202

187:
  %188 = load ptr, ptr %96, align 8
  %189 = getelementptr inbounds nuw i8, ptr %188, i64 152
  %190 = load ptr, ptr %189, align 8
  %191 = call ptr %190(ptr noundef nonnull %8) #10
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %5)
  %192 = icmp eq ptr %191, null
  br i1 %192, label %198, label %193

193:
  store i64 24, ptr %5, align 8
  %194 = getelementptr inbounds nuw i8, ptr %5, i64 8
  store ptr null, ptr %194, align 8
  %195 = getelementptr inbounds nuw i8, ptr %5, i64 16
  store ptr %191, ptr %195, align 8
  %196 = getelementptr inbounds nuw i8, ptr %188, i64 64
  %197 = load ptr, ptr %196, align 8
  call void %197(ptr noundef nonnull %5) #10
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %5)
  br label %186

198:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %5)
  %199 = getelementptr inbounds nuw i8, ptr %8, i64 16
  %200 = load ptr, ptr %199, align 8
  store ptr %200, ptr %97, align 16
  %201 = getelementptr inbounds nuw i8, ptr %0, i64 168
  store ptr %200, ptr %201, align 8
  call fastcc void @complete(ptr noundef nonnull %83) #9
  br label %206

202:
  %203 = call i32 @sched_yield() #10
  %204 = load atomic i64, ptr %83 acquire, align 128
  %205 = icmp eq i64 %204, %160
  br i1 %205, label %206, label %202

206:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %8)
  br label %207

207:
  %208 = atomicrmw sub ptr %93, i64 1 acq_rel, align 8
  %209 = icmp eq i64 %208, 1
  br i1 %209, label %210, label %211

210:
  call void @free(ptr noundef nonnull %83) #10
  br label %211

211:
  call void @llvm.lifetime.end.p0(i64 40, ptr nonnull %10)
  br label %215

212:
  %213 = load ptr, ptr %1, align 8
  %214 = load i64, ptr %33, align 8
  call void %213(i64 noundef 0, i64 noundef %214, ptr noundef %2, ptr noundef %28) #10
  br label %215

215:
  call fastcc void @give_scratch(ptr noundef %28) #9
  br label %216

216:
  %217 = phi ptr [ null, %215 ], [ %26, %21 ]
  ret ptr %217
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
  %14 = tail call fastcc ptr @run(ptr noundef %0, ptr noundef nonnull %1, ptr noundef %2, i1 noundef true) #9
  br label %17

15:
  %16 = load ptr, ptr %1, align 8
  tail call void %16(i64 noundef 0, i64 noundef %8, ptr noundef %2, ptr noundef %3) #10
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
  br label %74

12:
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %14 = load i32, ptr %13, align 8
  %15 = icmp eq i32 %14, 3
  br i1 %15, label %16, label %74

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
  br i1 %58, label %68, label %59

59:
  %60 = tail call fastcc ptr @take_scratch(i64 noundef %57) #9
  %61 = icmp eq ptr %60, null
  br i1 %61, label %62, label %68

62:
  %63 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %64 = load ptr, ptr %63, align 8
  call void @llvm.lifetime.start.p0(i64 32, ptr nonnull %3)
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 8 dereferenceable(32) %3, ptr noundef nonnull align 8 dereferenceable(32) @__const.no_memory.args, i64 32, i1 false)
  %65 = getelementptr inbounds nuw i8, ptr %64, i64 48
  %66 = load ptr, ptr %65, align 8
  %67 = call ptr %66(ptr noundef nonnull %3) #10
  call void @llvm.lifetime.end.p0(i64 32, ptr nonnull %3)
  br label %72

68:
  %69 = phi ptr [ %60, %59 ], [ null, %55 ]
  %70 = load ptr, ptr %1, align 8
  %71 = call ptr %70(ptr noundef nonnull %0, ptr noundef nonnull %24, ptr noundef %69) #10
  call fastcc void @give_scratch(ptr noundef %69) #9
  br label %72

72:
  %73 = phi ptr [ %71, %68 ], [ %67, %62 ]
  call void @llvm.stackrestore.p0(ptr %23)
  br label %74

74:
  %75 = phi ptr [ %73, %72 ], [ null, %12 ], [ null, %7 ]
  ret ptr %75
}

define internal fastcc ptr @take_scratch(i64 noundef range(i64 1, 0) %0) unnamed_addr #0 {
  %2 = tail call i32 @sched_getcpu() #10
  %3 = tail call i32 @llvm.smax.i32(i32 %2, i32 0)
  %4 = zext nneg i32 %3 to i64
  br label %5

5:
  %6 = phi i64 [ 0, %1 ], [ %23, %22 ]
  %7 = add nuw nsw i64 %6, %4
  %8 = and i64 %7, 63
  %9 = getelementptr inbounds nuw [64 x %struct.anon.0], ptr @slots, i64 0, i64 %8
  %10 = load atomic i64, ptr %9 monotonic, align 64
  %11 = icmp eq i64 %10, 0
  br i1 %11, label %22, label %12

12:
  %13 = atomicrmw xchg ptr %9, i64 0 acq_rel, align 8
  %14 = icmp eq i64 %13, 0
  br i1 %14, label %22, label %15

15:
  %16 = inttoptr i64 %13 to ptr
  %17 = load i64, ptr %16, align 64
  %18 = icmp ult i64 %17, %0
  br i1 %18, label %21, label %19

19:
  %20 = getelementptr inbounds nuw i8, ptr %16, i64 64
  br label %39

21:
  tail call void @free(ptr noundef nonnull %16) #10
  br label %25

22:
  %23 = add nuw nsw i64 %6, 1
  %24 = icmp eq i64 %23, 64
  br i1 %24, label %25, label %5

25:
  %26 = icmp ugt i64 %0, 2097151
  %27 = select i1 %26, i64 -2097152, i64 -64
  %28 = select i1 %26, i64 2097152, i64 64
  %29 = add i64 %0, 63
  %30 = add i64 %29, %28
  %31 = and i64 %30, %27
  %32 = tail call noalias ptr @aligned_alloc(i64 noundef %28, i64 noundef %31) #11
  call void @llvm.assume(i1 true) [ "align"(ptr %32, i64 %28) ]
  %33 = icmp eq ptr %32, null
  br i1 %33, label %39, label %34

34:
  br i1 %26, label %35, label %37

35:
  %36 = tail call i32 @madvise(ptr noundef nonnull %32, i64 noundef range(i64 0, -63) %31, i32 noundef 14) #10
  br label %37

37:
  store i64 %0, ptr %32, align 64
  %38 = getelementptr inbounds nuw i8, ptr %32, i64 64
  br label %39

39:
  %40 = phi ptr [ %20, %19 ], [ %38, %37 ], [ null, %25 ]
  ret ptr %40
}

define internal fastcc void @give_scratch(ptr noundef %0) unnamed_addr #0 {
  %2 = icmp eq ptr %0, null
  br i1 %2, label %20, label %3

3:
  %4 = getelementptr inbounds i8, ptr %0, i64 -64
  %5 = tail call i32 @sched_getcpu() #10
  %6 = tail call i32 @llvm.smax.i32(i32 %5, i32 0)
  %7 = zext nneg i32 %6 to i64
  %8 = ptrtoint ptr %4 to i64
  br label %12

9:
  %10 = add nuw nsw i64 %13, 1
  %11 = icmp eq i64 %10, 64
  br i1 %11, label %19, label %12

12:
  %13 = phi i64 [ 0, %3 ], [ %10, %9 ]
  %14 = add nuw nsw i64 %13, %7
  %15 = and i64 %14, 63
  %16 = getelementptr inbounds nuw [64 x %struct.anon.0], ptr @slots, i64 0, i64 %15
  %17 = cmpxchg ptr %16, i64 0, i64 %8 acq_rel monotonic, align 64
  %18 = extractvalue { i64, i1 } %17, 1
  br i1 %18, label %20, label %9

19:
  tail call void @free(ptr noundef nonnull %4) #10
  br label %20

20:
  ret void
}

define internal void @task(ptr noundef %0) #0 {
  %2 = alloca %struct.timespec, align 8
  %3 = alloca %struct.timespec, align 8
  %4 = icmp eq ptr %0, null
  br i1 %4, label %88, label %5

5:
  %6 = getelementptr inbounds nuw i8, ptr %3, i64 8
  %7 = getelementptr inbounds nuw i8, ptr %2, i64 8
  br label %8

8:
  %9 = phi ptr [ %0, %5 ], [ %87, %86 ]
  %10 = getelementptr inbounds nuw i8, ptr %9, i64 64
  %11 = load ptr, ptr %10, align 64
  %12 = getelementptr inbounds nuw i8, ptr %11, i64 24
  %13 = load i64, ptr %12, align 8
  %14 = getelementptr inbounds nuw i8, ptr %9, i64 128
  %15 = getelementptr inbounds nuw i8, ptr %9, i64 96
  %16 = load i64, ptr %15, align 32
  %17 = icmp sgt i64 %16, 0
  br i1 %17, label %21, label %38

18:
  %19 = add nuw nsw i64 %22, 1
  %20 = icmp eq i64 %19, %16
  br i1 %20, label %38, label %21

21:
  %22 = phi i64 [ %19, %18 ], [ 0, %8 ]
  %23 = getelementptr inbounds nuw [0 x %struct.PartLine], ptr %14, i64 0, i64 %22
  %24 = load atomic i64, ptr %23 monotonic, align 128
  %25 = trunc i64 %24 to i32
  %26 = lshr i64 %24, 32
  %27 = trunc nuw i64 %26 to i32
  %28 = icmp ult i32 %25, %27
  br i1 %28, label %29, label %18

29:
  %30 = icmp eq i64 %13, 0
  br i1 %30, label %34, label %31

31:
  %32 = call fastcc ptr @take_scratch(i64 noundef %13) #9
  %33 = icmp eq ptr %32, null
  br i1 %33, label %38, label %34

34:
  %35 = phi ptr [ %32, %31 ], [ null, %29 ]
  %36 = call fastcc i1 @work(ptr noundef %9, ptr noundef %35) #9
  call fastcc void @give_scratch(ptr noundef %35) #9
  br i1 %36, label %37, label %38

37:
  call fastcc void @complete(ptr noundef %9) #9
  br label %38

38:
  %39 = getelementptr inbounds nuw i8, ptr %9, i64 104
  %40 = load i64, ptr %39, align 8
  %41 = call i32 @sched_getcpu() #10
  %42 = call i32 @llvm.smax.i32(i32 %41, i32 0)
  %43 = zext nneg i32 %42 to i64
  %44 = icmp eq i64 %40, %43
  %45 = getelementptr inbounds nuw i8, ptr %9, i64 8
  %46 = atomicrmw sub ptr %45, i64 1 acq_rel, align 8
  %47 = icmp eq i64 %46, 1
  br i1 %47, label %48, label %49

48:
  call void @free(ptr noundef nonnull %9) #10
  br label %49

49:
  br i1 %44, label %88, label %53

50:
  %51 = add nuw nsw i64 %54, 1
  %52 = icmp eq i64 %51, 16
  br i1 %52, label %88, label %53

53:
  %54 = phi i64 [ %51, %50 ], [ 0, %49 ]
  %55 = getelementptr inbounds nuw [16 x %struct.anon], ptr @seats, i64 0, i64 %54
  %56 = cmpxchg ptr %55, i64 0, i64 ptrtoint (ptr @waiting to i64) acq_rel acquire, align 64
  %57 = extractvalue { i64, i1 } %56, 1
  br i1 %57, label %58, label %50

58:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %3)
  %59 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %3) #10
  %60 = load i64, ptr %3, align 8
  %61 = load i64, ptr %6, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %3)
  br label %67

62:
  %63 = add nuw nsw i64 %68, 1
  %64 = icmp eq i64 %63, 64
  br i1 %64, label %71, label %65

65:
  %66 = phi i64 [ %63, %62 ], [ 0, %81 ], [ 0, %71 ]
  br label %67

67:
  %68 = phi i64 [ 0, %58 ], [ %66, %65 ]
  %69 = load atomic i64, ptr %55 acquire, align 64
  %70 = icmp eq i64 %69, ptrtoint (ptr @waiting to i64)
  br i1 %70, label %62, label %84

71:
  %72 = call i32 @sched_yield() #10
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %2)
  %73 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %2) #10
  %74 = load i64, ptr %2, align 8
  %75 = load i64, ptr %7, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %2)
  %76 = sub i64 %74, %60
  %77 = mul i64 %76, 1000000000
  %78 = sub i64 %75, %61
  %79 = add i64 %78, %77
  %80 = icmp slt i64 %79, 50000
  br i1 %80, label %65, label %81

81:
  %82 = cmpxchg ptr %55, i64 ptrtoint (ptr @waiting to i64), i64 0 acq_rel acquire, align 64
  %83 = extractvalue { i64, i1 } %82, 1
  br i1 %83, label %88, label %65

84:
  %85 = icmp eq i64 %69, 0
  br i1 %85, label %88, label %86

86:
  %87 = inttoptr i64 %69 to ptr
  store atomic i64 0, ptr %55 release, align 64
  br label %8

88:
  ret void
}

define internal fastcc i1 @work(ptr nocapture noundef nonnull %0, ptr noundef %1) unnamed_addr #0 {
  %3 = tail call i32 @sched_getcpu() #10
  %4 = tail call i32 @llvm.smax.i32(i32 %3, i32 0)
  %5 = zext nneg i32 %4 to i64
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 96
  %7 = load i64, ptr %6, align 32
  %8 = urem i64 %5, %7
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %10 = shl nuw i64 1, %8
  %11 = atomicrmw or ptr %9, i64 %10 monotonic, align 8
  %12 = and i64 %11, %10
  %13 = icmp eq i64 %12, 0
  br i1 %13, label %22, label %14

14:
  %15 = phi i64 [ %17, %14 ], [ %8, %2 ]
  %16 = add nsw i64 %15, 1
  %17 = srem i64 %16, %7
  %18 = shl nuw i64 1, %17
  %19 = atomicrmw or ptr %9, i64 %18 monotonic, align 8
  %20 = and i64 %19, %18
  %21 = icmp eq i64 %20, 0
  br i1 %21, label %22, label %14

22:
  %23 = phi i64 [ %8, %2 ], [ %17, %14 ]
  %24 = icmp sgt i64 %7, 0
  br i1 %24, label %27, label %25

25:
  %26 = atomicrmw or ptr %0, i64 0 acq_rel, align 128
  br label %93

27:
  %28 = getelementptr inbounds nuw i8, ptr %0, i64 128
  %29 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %30 = getelementptr inbounds nuw i8, ptr %0, i64 88
  br label %31

31:
  %32 = phi i64 [ %7, %27 ], [ %81, %79 ]
  %33 = phi i64 [ 0, %27 ], [ %40, %79 ]
  %34 = phi i64 [ 0, %27 ], [ %80, %79 ]
  %35 = add nsw i64 %34, %23
  %36 = srem i64 %35, %32
  %37 = getelementptr inbounds [0 x %struct.PartLine], ptr %28, i64 0, i64 %36
  %38 = icmp eq i64 %34, 0
  br label %39

39:
  %40 = phi i64 [ %33, %31 ], [ %78, %70 ]
  %41 = load atomic i64, ptr %37 monotonic, align 8
  br label %42

42:
  %43 = phi i64 [ %41, %39 ], [ %62, %48 ]
  %44 = lshr i64 %43, 32
  %45 = trunc nuw i64 %44 to i32
  %46 = trunc i64 %43 to i32
  %47 = icmp ult i32 %46, %45
  br i1 %47, label %48, label %66

48:
  %49 = sub nuw i32 %45, %46
  %50 = add i32 %49, 1
  %51 = lshr i32 %50, 1
  %52 = add i32 %51, %46
  %53 = sub i32 %45, %51
  %54 = select i1 %38, i32 %45, i32 %53
  %55 = select i1 %38, i32 %52, i32 %46
  %56 = zext i32 %54 to i64
  %57 = shl nuw i64 %56, 32
  %58 = zext i32 %55 to i64
  %59 = or disjoint i64 %57, %58
  %60 = cmpxchg ptr %37, i64 %43, i64 %59 acq_rel monotonic, align 8
  %61 = extractvalue { i64, i1 } %60, 1
  %62 = extractvalue { i64, i1 } %60, 0
  br i1 %61, label %63, label %42

63:
  %64 = select i1 %38, i32 %46, i32 %53
  %65 = select i1 %38, i32 %52, i32 %45
  br label %66

66:
  %67 = phi i32 [ %64, %63 ], [ %46, %42 ]
  %68 = phi i32 [ %65, %63 ], [ %45, %42 ]
  %69 = icmp ult i32 %67, %68
  br i1 %69, label %70, label %79

70:
  %71 = zext i32 %67 to i64
  %72 = zext i32 %68 to i64
  %73 = load ptr, ptr %29, align 64
  %74 = load ptr, ptr %73, align 8
  %75 = load ptr, ptr %30, align 8
  tail call void %74(i64 noundef %71, i64 noundef %72, ptr noundef %75, ptr noundef %1) #10
  %76 = sub nsw i64 %72, %71
  %77 = and i64 %76, 4294967295
  %78 = add nsw i64 %77, %40
  br label %39

79:
  %80 = add nuw nsw i64 %34, 1
  %81 = load i64, ptr %6, align 32
  %82 = icmp slt i64 %80, %81
  br i1 %82, label %31, label %83

83:
  %84 = atomicrmw add ptr %0, i64 %40 acq_rel, align 128
  %85 = icmp eq i64 %40, 0
  br i1 %85, label %93, label %86

86:
  %87 = add nsw i64 %84, %40
  %88 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %89 = load ptr, ptr %88, align 64
  %90 = getelementptr inbounds nuw i8, ptr %89, i64 32
  %91 = load i64, ptr %90, align 8
  %92 = icmp eq i64 %87, %91
  br label %93

93:
  %94 = phi i1 [ false, %83 ], [ %92, %86 ], [ false, %25 ]
  ret i1 %94
}

declare noalias noundef ptr @aligned_alloc(i64 allocalign noundef, i64 noundef) local_unnamed_addr #2

declare void @llvm.memset.p0.i64(ptr nocapture writeonly, i8, i64, i1 immarg) #3

declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #4

declare i32 @sched_getcpu() local_unnamed_addr #0

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
  %16 = call ptr %15(ptr noundef nonnull %3) #10
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
  call void %22(ptr noundef nonnull %2) #10
  br label %23

23:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %2)
  br label %24

24:
  ret void
}

declare i32 @sched_yield() local_unnamed_addr #0

declare i32 @clock_gettime(i32 noundef, ptr noundef) local_unnamed_addr #0

declare void @free(ptr allocptr nocapture noundef) local_unnamed_addr #5

declare void @llvm.assume(i1 noundef) #6

declare i32 @madvise(ptr noundef, i64 noundef, i32 noundef) local_unnamed_addr #0

declare i64 @llvm.smin.i64(i64, i64) #7

declare i32 @llvm.smax.i32(i32, i32) #7

declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #8

declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #8

attributes #0 = { nounwind optsize }
attributes #1 = { mustprogress nocallback nofree nosync nounwind willreturn }
attributes #2 = { mustprogress nofree nounwind optsize willreturn allockind("alloc,uninitialized,aligned") allocsize(1) memory(inaccessiblemem: readwrite) }
attributes #3 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #4 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #5 = { mustprogress nounwind optsize willreturn allockind("free") memory(argmem: readwrite, inaccessiblemem: readwrite) }
attributes #6 = { mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #7 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #8 = { nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #9 = { optsize }
attributes #10 = { nounwind optsize }
attributes #11 = { nounwind optsize allocsize(1) }

