// A device of torch whose memory the host cannot touch (streams.h), and whose kernels are those of the CPU.
//
// Everything is registered as boxed kernels, with arguments on a stack: of torch's templates this needs few, and
// compiles in a tenth of the time.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>

#include "device.h"

using c10::IValue, c10::OperatorHandle;
using Stack = torch::jit::Stack;

// ---- kernels

// A kernel's tensors on the card, and what the CPU's kernel is given instead.
class Arguments {
 public:
  DeviceIndex device = -1;

  IValue for_kernel(const IValue& value, const c10::Argument& argument) {
    bool writes = argument.alias_info() && argument.alias_info()->isWrite();
    auto each = [&](const Tensor& tensor) { return add(tensor, writes, argument.is_out()); };
    if (value.isTensor()) return each(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(each(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (std::optional<Tensor> tensor : value.toOptionalTensorList())
        list.push_back(tensor ? std::optional(each(*tensor)) : tensor);
      return list;
    }
    return value;
  }

  // What the kernel has returned: an argument, or a new tensor.
  IValue from_kernel(const IValue& value) {
    if (value.isTensor()) return on_card(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(on_card(tensor));
    return list;
  }

  void begin(card::Stream& stream, const std::string& name) {
    if (has_stray && name.rfind("aten::index", 0) && name.rfind("aten::_index", 0))
      TORCH_CHECK(false, "card: ", name, " is given tensors on the card and on the host");
    for (Used& each : used_) card::reads(stream, range_of(each.on_card));
  }

  void end(card::Stream& stream) {
    for (Used& each : used_) {
      if (each.is_out) resize_and_fill(each);
      if (each.is_written) card::has_written(stream, range_of(each.on_card));
    }
  }

 private:
  struct Used {
    Tensor on_card, on_host;
    bool is_written, is_out;
  };
  std::vector<Used> used_;
  bool has_stray = false;

  Tensor add(const Tensor& tensor, bool writes, bool is_out) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_privateuseone()) {
      has_stray |= tensor.dim() > 0;
      return tensor;
    }
    TORCH_CHECK(device < 0 || device == tensor.device().index(), "card: tensors are on two cards");
    device = tensor.device().index();
    Tensor given = for_kernels(tensor);
    if (is_out) given = at::empty_strided(tensor.sizes(), tensor.strides(), given.options());  // kernels may resize it
    used_.push_back({tensor, given, writes, is_out});
    return given;
  }

  Tensor on_card(const Tensor& made) {
    for (Used& each : used_)
      if (each.on_host.is_same(made)) return each.on_card;
    if (!made.defined()) return made;
    Tensor result = empty_on_card(made.sizes(), made.strides(), made.scalar_type(), device);
    for_kernels(result).copy_(made);
    used_.push_back({result, made, true, false});
    return result;
  }

  static void resize_and_fill(Used& out) {
    Tensor& tensor = out.on_card;
    if (tensor.sizes() != out.on_host.sizes()) {
      auto type = tensor.scalar_type();
      Tensor larger = empty_on_card(out.on_host.sizes(), out.on_host.strides(), type, tensor.device().index());
      auto* impl = tensor.unsafeGetTensorImpl();
      impl->set_storage_keep_dtype(larger.storage());
      impl->set_sizes_and_strides(larger.sizes(), larger.strides(), 0);
    }
    for_kernels(tensor).copy_(out.on_host);
  }
};

// Run `kernel` of the CPU with the arguments of `op`, in the current stream.
static void run(const OperatorHandle& op, const OperatorHandle& kernel, Stack* stack) {
  const auto& schema = kernel.schema();
  size_t count = schema.arguments().size(), first = stack->size() - count;
  Arguments arguments;
  for (size_t n = 0; n < count; n++)
    (*stack)[first + n] = arguments.for_kernel((*stack)[first + n], schema.arguments()[n]);
  if (arguments.device < 0) arguments.device = current_device;
  card::Stream& stream = stream_of(arguments.device);
  card::Lock lock(card::mutex);
  arguments.begin(stream, op.schema().name());
  card::launched(stream);
  bool draws = op.hasTag(at::Tag::nondeterministic_seeded);
  auto cpu = at::detail::getDefaultCPUGenerator();
  Tensor of_host = draws ? cpu.get_state() : Tensor();
  if (draws) cpu.set_state(generator(arguments.device).get_state());
  {
    at::AutoDispatchBelowADInplaceOrView below;
    kernel.callBoxed(stack);
  }
  if (draws) {
    generator(arguments.device).set_state(cpu.get_state());
    cpu.set_state(of_host);
  }
  for (size_t n = stack->size() - schema.returns().size(); n < stack->size(); n++)
    (*stack)[n] = arguments.from_kernel((*stack)[n]);
  arguments.end(stream);
}

static void fallback(const OperatorHandle& op, Stack* stack) {
  for (const auto& result : op.schema().returns())
    TORCH_CHECK(!result.alias_info() || result.alias_info()->isWrite(), "card: no view by ", op.schema().name());
  run(op, op, stack);
}

static OperatorHandle named(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

static void convolution(const OperatorHandle& op, Stack* stack) { run(op, named("aten::convolution"), stack); }

static void convolution_backward(const OperatorHandle& op, Stack* stack) {
  auto arguments = stack->end() - op.schema().arguments().size();
  int64_t channels = arguments[0].toTensor().size(1);  // as many as biases
  stack->insert(arguments + 3, IValue(std::vector<int64_t>{channels}));
  run(op, named("aten::convolution_backward"), stack);
}

// ---- what is no kernel: memory, views and copies

static void give(Stack* stack, const OperatorHandle& op, IValue result) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->push_back(std::move(result));
}

static IValue argument(const OperatorHandle& op, Stack* stack, size_t number) {
  return torch::jit::peek(*stack, number, op.schema().arguments().size());
}

static DeviceIndex device_in(const IValue& value) {
  return value.isDevice() && value.toDevice().has_index() ? value.toDevice().index() : current_device;
}

static at::ScalarType type_in(const IValue& value) {
  return value.isNone() ? at::ScalarType::Float : value.toScalarType();
}

static void empty(const OperatorHandle& op, Stack* stack) {
  auto sizes = argument(op, stack, 0).toIntVector();
  IValue format = argument(op, stack, 5);
  DeviceIndex before = std::exchange(current_device, device_in(argument(op, stack, 3)));
  Tensor made = at::detail::empty_generic(
      sizes, &card_allocator, KEY, type_in(argument(op, stack, 1)),
      format.isNone() ? std::nullopt : std::optional(format.toMemoryFormat()));
  current_device = before;
  give(stack, op, made);
}

static void empty_strided(const OperatorHandle& op, Stack* stack) {
  give(stack, op,
       empty_on_card(argument(op, stack, 0).toIntVector(), argument(op, stack, 1).toIntVector(),
                     type_in(argument(op, stack, 2)), device_in(argument(op, stack, 4))));
}

static void as_strided(const OperatorHandle& op, Stack* stack) {
  give(stack, op,
       at::native::as_strided_tensorimpl(argument(op, stack, 0).toTensor(), argument(op, stack, 1).toIntVector(),
                                         argument(op, stack, 2).toIntVector(),
                                         argument(op, stack, 3).toOptional<int64_t>()));
}

static void view(const OperatorHandle& op, Stack* stack) {
  give(stack, op, at::native::view(argument(op, stack, 0).toTensor(), argument(op, stack, 1).toIntVector()));
}

static void view_dtype(const OperatorHandle& op, Stack* stack) {
  give(stack, op, at::native::view_dtype(argument(op, stack, 0).toTensor(), argument(op, stack, 1).toScalarType()));
}

static void reshape_alias(const OperatorHandle& op, Stack* stack) {
  give(stack, op,
       at::native::_reshape_alias(argument(op, stack, 0).toTensor(), argument(op, stack, 1).toIntVector(),
                                  argument(op, stack, 2).toIntVector()));
}

static void unfold(const OperatorHandle& op, Stack* stack) {
  give(stack, op,
       at::native::unfold(argument(op, stack, 0).toTensor(), argument(op, stack, 1).toInt(),
                          argument(op, stack, 2).toInt(), argument(op, stack, 3).toInt()));
}

static void set_storage(const OperatorHandle& op, Stack* stack) {
  Tensor tensor = argument(op, stack, 0).toTensor();
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(argument(op, stack, 1).toStorage());
  impl->set_sizes_and_strides(argument(op, stack, 3).toIntVector(), argument(op, stack, 4).toIntVector(),
                              argument(op, stack, 2).toInt());
  give(stack, op, tensor);
}

static void resize(const OperatorHandle& op, Stack* stack) {
  Tensor tensor = argument(op, stack, 0).toTensor();
  auto sizes = argument(op, stack, 1).toIntVector();
  auto* impl = tensor.unsafeGetTensorImpl();
  size_t needed = at::detail::computeStorageNbytesContiguous(sizes, tensor.itemsize(), tensor.storage_offset());
  TORCH_CHECK(!tensor.numel() || needed <= tensor.storage().nbytes(), "card: a tensor with values cannot grow");
  if (needed > tensor.storage().nbytes()) {
    Tensor larger = empty_on_card({static_cast<int64_t>(needed)}, {1}, at::kByte, tensor.device().index());
    impl->set_storage_keep_dtype(larger.storage());
  }
  impl->set_sizes_contiguous(sizes);
  give(stack, op, tensor);
}

static void item(const OperatorHandle& op, Stack* stack) {
  Tensor tensor = argument(op, stack, 0).toTensor();
  card::Stream& stream = stream_of(tensor.device().index());
  card::reads(stream, range_of(tensor));
  card::synchronise(card::record(stream));
  give(stack, op, for_kernels(tensor).item());
}

static void copy_now(const Tensor& from, const Tensor& to) {
  for (const Tensor& each : {from, to})
    if (each.is_privateuseone()) card::reads(stream_of(each.device().index()), range_of(each));
  at::AutoDispatchBelowADInplaceOrView below;
  for_kernels(to).copy_(for_kernels(from));
  if (to.is_privateuseone()) card::has_written(stream_of(to.device().index()), range_of(to));
}

static void copy(const OperatorHandle& op, Stack* stack) {
  Tensor from = argument(op, stack, 0).toTensor(), to = argument(op, stack, 1).toTensor();
  bool may_be_late = argument(op, stack, 2).toBool(), to_card = to.is_privateuseone();
  card::Stream& stream = stream_of((to_card ? to : from).device().index());
  give(stack, op, to);
  card::Lock lock(card::mutex);
  if (to_card && from.is_privateuseone()) {
    card::launched(stream);
    copy_now(from, to);
    return;
  }
  (to_card ? card::counts.bytes_in : card::counts.bytes_out) += to.nbytes();
  const Tensor& host = to_card ? from : to;
  bool is_plain = from.dtype() == to.dtype() && from.is_contiguous() && to.is_contiguous() && to.numel();
  if (may_be_late && is_plain && pinned_allocator.contains(host.const_data_ptr())) {
    card::begin_copy(stream, to_card, range_of(to_card ? to : from), range_of(host));
  } else {
    card::synchronise(card::record(stream));
    copy_now(from, to);
  }
}

// ---- for torch, and for card.py

template <c10::KernelFunction::BoxedKernelFunction* kernel>
static void implement(const char* name, const char* overload = "") {
  static auto handle = c10::Dispatcher::singleton().registerImpl(
      {name, overload}, c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunction<kernel>(),
      std::nullopt, nullptr, "card for tests");
}

extern "C" {

void card_register() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  static auto others = c10::Dispatcher::singleton().registerFallback(
      c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunction<&fallback>(), "card for tests");
  implement<&empty>("aten::empty", "memory_format");
  implement<&empty_strided>("aten::empty_strided");
  implement<&as_strided>("aten::as_strided");
  implement<&view>("aten::view");
  implement<&view_dtype>("aten::view", "dtype");
  implement<&reshape_alias>("aten::_reshape_alias");
  implement<&unfold>("aten::unfold");
  implement<&set_storage>("aten::set_", "source_Storage_storage_offset");
  implement<&resize>("aten::resize_");
  implement<&item>("aten::_local_scalar_dense");
  implement<&copy>("aten::_copy_from");
  implement<&fallback>("aten::native_layer_norm");  // which otherwise is composed of others that round otherwise
  implement<&convolution>("aten::convolution_overrideable");
  implement<&convolution_backward>("aten::convolution_backward_overrideable");
}

int card_count() { return card::devices(); }
void card_synchronise(int device) { Guard().synchronizeDevice(static_cast<DeviceIndex>(device)); }
void card_seed(int device, uint64_t seed) { generator(device).set_current_seed(seed); }

// Copy the generator's state to or from `state`; return its size.
size_t card_random_state(int device, void* state, bool sets) {
  Tensor own = generator(device).get_state();
  if (state) std::memcpy(sets ? own.data_ptr() : state, sets ? state : own.data_ptr(), own.nbytes());
  if (sets) generator(device).set_state(own);
  return own.nbytes();
}

void* card_for_library(void* start, size_t bytes) { return card::for_library({static_cast<char*>(start), bytes}); }

card::Counts* card_counts() { return &card::counts; }
}
