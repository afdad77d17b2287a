// What torch wants to know of a device: its memory, streams, events and random numbers.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "streams.h"

using at::Tensor;
using c10::Device, c10::DeviceIndex;

constexpr auto CARD = c10::DeviceType::PrivateUse1;
constexpr auto KEY = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
constexpr int MOST_DEVICES = 16;

static thread_local DeviceIndex current_device = 0;
static thread_local c10::StreamId current_stream[MOST_DEVICES] = {};

static card::Stream& stream_of(int device) { return card::stream(device, current_stream[device]); }
static card::Stream& stream_of(const c10::Stream& stream) { return card::stream(stream.device_index(), stream.id()); }

// ---- memory

struct CardAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    char* start = bytes ? card::allocate(bytes, stream_of(current_device)).start : nullptr;
    return {start, start, &release, Device(CARD, current_device)};
  }
  static void release(void* start) {
    card::Lock lock(card::mutex);
    if (start) card::memory().release(static_cast<char*>(start));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, size_t) const override { card::raise("a storage is copied outside a kernel"); }
};

struct PinnedAllocator final : c10::Allocator {
  std::map<char*, size_t> blocks;

  c10::DataPtr allocate(size_t bytes) override {
    char* start = static_cast<char*>(aligned_alloc(card::Memory::alignment, (bytes / 64 + 1) * 64));
    std::memset(start, 0xff, bytes);
    card::Lock lock(card::mutex);
    blocks[start] = bytes;
    return {start, start, &release, Device(c10::DeviceType::CPU)};
  }
  static void release(void* start);
  bool contains(const void* address) const {
    card::Lock lock(card::mutex);
    auto next = blocks.upper_bound(const_cast<char*>(static_cast<const char*>(address)));
    return next != blocks.begin() && address < std::prev(next)->first + std::prev(next)->second;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

static CardAllocator card_allocator;
static auto& pinned_allocator = *new PinnedAllocator;  // never destroyed: tensors may outlive static objects
REGISTER_ALLOCATOR(CARD, &card_allocator)

void PinnedAllocator::release(void* start) {
  card::Lock lock(card::mutex);
  auto found = pinned_allocator.blocks.find(static_cast<char*>(start));
  card::host_frees({found->first, found->second});
  pinned_allocator.blocks.erase(found);
  std::free(start);
}

static Tensor empty_on_card(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, DeviceIndex device) {
  DeviceIndex before = std::exchange(current_device, device);
  Tensor made = at::detail::empty_strided_generic(sizes, strides, &card_allocator, KEY, type);
  current_device = before;
  return made;
}

// The memory of a tensor, from its first element to its last.
static card::Range range_of(const Tensor& tensor) {
  size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  return {static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())), bytes};
}

// The same memory as kernels see it.
static Tensor for_kernels(const Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  auto options = at::TensorOptions(tensor.dtype());
  if (!tensor.numel()) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(card::memory().for_kernels(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), options);
}

// ---- streams and events

struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return CARD; }
  DeviceIndex deviceCount() const noexcept override { return card::devices(); }
  Device getDevice() const override { return {CARD, current_device}; }
  void setDevice(Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override { exchangeDevice(device); }
  Device exchangeDevice(Device device) const override {
    return {CARD, std::exchange(current_device, device.has_index() ? device.index() : current_device)};
  }

  static c10::Stream named(Device device, c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device, id); }
  c10::Stream getStream(Device device) const override { return named(device, current_stream[device.index()]); }
  c10::Stream getDefaultStream(Device device) const override { return named(device, 0); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device); }
  c10::Stream getNewStream(Device device, int = 0) const override {
    static std::atomic<c10::StreamId> made = 0;
    return named(device.has_index() ? device : getDevice(), ++made);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return named(stream.device(), std::exchange(current_stream[stream.device_index()], stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    card::Lock lock(card::mutex);
    return stream_of(stream).late.empty();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    card::counts.stream_waits++;
    card::synchronise(card::record(stream_of(stream)));
  }
  void synchronizeDevice(DeviceIndex device) const override {
    card::counts.device_waits++;
    card::synchronise_device(device);
  }

  void record(void** event, const c10::Stream& stream, DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new card::Event;
    *static_cast<card::Event*>(*event) = card::record(stream_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) card::wait(stream_of(stream), *static_cast<card::Event*>(event));
  }
  bool queryEvent(void* event) const override {  // a program that asks again and again is to see the end
    synchronizeEvent(event);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event) card::synchronise(*static_cast<card::Event*>(event));
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete static_cast<card::Event*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// ---- random numbers: a kernel draws from the CPU's generator, into which the card's state is put meanwhile

static at::Generator& generator(int device) {
  static auto* made = new std::vector<at::Generator>;
  while (static_cast<int>(made->size()) <= device) made->push_back(at::detail::createCPUGenerator());
  return (*made)[device];
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return card::devices() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return card::devices(); }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  void setCurrentDevice(DeviceIndex device) const override { current_device = device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override { return std::exchange(current_device, device); }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current_device : exchangeDevice(device);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  bool isPinnedPtr(const void* address) const override { return pinned_allocator.contains(address); }
  Device getDeviceFromPtr(void* address) const override {
    card::Block* block = card::memory().block(address);
    return {CARD, static_cast<DeviceIndex>(block ? block->owner->device : 0)};
  }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return generator(device); }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};
