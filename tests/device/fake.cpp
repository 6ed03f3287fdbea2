// "fake": a PrivateUse1 device whose memory is the host's, whose kernels are the CPU's, and which refuses
// to be mixed.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {
constexpr auto PU1 = c10::DeviceType::PrivateUse1;
int devices() {
  auto n = std::getenv("FAKE_DEVICES");
  return n ? std::atoi(n) : 2;
}
thread_local c10::DeviceIndex current = 0;
std::mutex lock;
std::map<std::string, long> counts;
long live = 0, peak = 0, h2d = 0, d2h = 0, wrong = 0;
bool odd = false;  // rounds otherwise than the CPU, as a GPU does
bool poisoned = false;  // by an index out of range: then it answers no call, as CUDA does
void answer() {
  TORCH_CHECK(!poisoned, "device-side assert triggered");
}
const std::set<std::string> rounded = {"aten::mm",    "aten::addmm",    "aten::sqrt",
                                       "aten::sqrt_", "aten::addcdiv_", "aten::div_"};
void count(const std::string& what, long n = 1) {
  std::lock_guard<std::mutex> g(lock);
  counts[what] += n;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return PU1; }
  c10::Device exchangeDevice(c10::Device d) const override {
    auto old = current;
    current = d.index();
    return {PU1, old};
  }
  c10::Device getDevice() const override { return {PU1, current}; }
  void setDevice(c10::Device d) const override { current = d.index(); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { current = d.index(); }
  c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    return c10::Stream(c10::Stream::DEFAULT, s.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return devices(); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { answer(); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Alloc final : c10::Allocator {
  static void free_(void* p) {
    auto q = static_cast<char*>(p) - 64;
    {
      std::lock_guard<std::mutex> g(lock);
      live -= *reinterpret_cast<size_t*>(q);
    }
    std::free(q);
  }
  c10::DataPtr allocate(size_t n) override {
    answer();
    c10::Device dev(PU1, current);
    if (n == 0) return {nullptr, nullptr, &free_, dev};
    char* q = static_cast<char*>(std::aligned_alloc(64, (n + 64 + 63) / 64 * 64));
    *reinterpret_cast<size_t*>(q) = n;
    std::memset(q + 64, 0xFF, n);  // NaN: nobody may rely on zeros
    {
      std::lock_guard<std::mutex> g(lock);
      live += n;
      peak = std::max(peak, live);
    }
    return {q + 64, q + 64, &free_, dev};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_; }
  void copy_data(void* dst, const void* src, size_t n) const override { std::memcpy(dst, src, n); }
};
Alloc alloc;
REGISTER_ALLOCATOR(PU1, &alloc);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return devices(); }
  void setCurrentDevice(c10::DeviceIndex d) const override { current = d; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override {
    auto o = current;
    current = d;
    return o;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override {
    auto o = current;
    if (d >= 0 && d < devices()) current = d;
    return o;
  }
  void resizePrivateUse1Bytes(const c10::Storage& s, size_t n) const override {
    auto fresh = alloc.allocate(n);
    if (s.data() && n) std::memcpy(fresh.get(), s.data(), std::min(n, s.nbytes()));
    s.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    s.unsafeGetStorageImpl()->set_nbytes(n);
  }
};
struct Init {
  Init() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
} init;

at::Tensor as_cpu(const at::Tensor& t) {
  return at::from_blob(t.data_ptr(), t.sizes(), t.strides(),
                       t.options().device(at::kCPU).requires_grad(false));
}
at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dt, std::optional<c10::Layout>,
                 std::optional<c10::Device> dev, std::optional<bool>, std::optional<c10::MemoryFormat> mf) {
  const c10::DeviceGuard g(c10::device_or_default(dev));
  return at::detail::empty_generic(size, &alloc, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dt), mf);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dt,
                         std::optional<c10::Layout>, std::optional<c10::Device> dev, std::optional<bool>) {
  const c10::DeviceGuard g(c10::device_or_default(dev));
  return at::detail::empty_strided_generic(
      size, stride, &alloc, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dt));
}
at::Tensor as_strided(const at::Tensor& s, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> off) {
  return at::cpu::as_strided_symint(s, size, stride, off);
}
const at::Tensor& resize_(const at::Tensor& s, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> mf) {
  return at::native::resize_(s, C10_AS_INTARRAYREF_SLOW(size), mf);
}
at::Tensor reshape_alias(const at::Tensor& s, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(s, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
at::Tensor view(const at::Tensor& s, c10::SymIntArrayRef size) {
  return at::native::view(s, C10_AS_INTARRAYREF_SLOW(size));
}
at::Tensor copy_from(const at::Tensor& s, const at::Tensor& d, bool) {
  answer();
  if (s.is_cpu()) {
    count("H2D");
    h2d += s.nbytes();
  } else if (d.is_cpu()) {
    count("D2H");
    d2h += s.nbytes();
  } else
    count("copy_");
  at::Tensor a = s.is_cpu() ? s : as_cpu(s), b = d.is_cpu() ? d : as_cpu(d);
  b.copy_(a);
  return d;
}
at::Tensor copy_from_and_resize(const at::Tensor& s, const at::Tensor& d) {
  at::native::resize_(d, s.sizes(), std::nullopt);
  copy_from(s, d, false);
  return d;
}
at::Scalar item(const at::Tensor& s) {
  answer();
  count("item");
  return at::native::_local_scalar_dense_cpu(as_cpu(s));
}
at::Tensor& set_t(at::Tensor& s, const at::Tensor& o) { return at::native::set_tensor_(s, o); }
at::Tensor& set_s(at::Tensor& s, at::Storage o) { return at::native::set_(s, o); }
at::Tensor& set_so(at::Tensor& s, at::Storage o, int64_t off, c10::IntArrayRef size,
                   c10::IntArrayRef stride) {
  return at::cpu::set_(s, o, off, size, stride);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  answer();
  const auto& name = op.schema().operator_name();
  const auto args = torch::jit::last(stack, op.schema().arguments().size());
  std::optional<c10::Device> here;
  const at::Tensor* cpu = nullptr;
  std::string which;
  bool indices_ok = name.name == "aten::index" || name.name.rfind("aten::index_put", 0) == 0 ||
                    name.name == "aten::_index_put_impl_";
  auto look = [&](const at::Tensor& t, bool index) {
    if (!t.defined()) return;
    if (t.device().type() == PU1) {
      if (here && *here != t.device()) {
        wrong++;
        TORCH_CHECK(false, "Expected all tensors to be on the same device, but found ", *here, " and ",
                    t.device(), " in ", name.name);
      }
      here = t.device();
    } else if (t.is_cpu() && t.dim() > 0 && !index)
      cpu = &t;
    else if (t.is_cpu() && index)
      count("CPU index into device (a hidden H2D and sync)");
  };
  std::vector<at::Tensor> held;
  held.reserve(256);
  for (const auto& v : args) {
    if (v.isTensor()) {
      held.push_back(v.toTensor());
      look(held.back(), false);
    } else if (v.isTensorList())
      for (const auto& t : v.toTensorVector()) {
        held.push_back(t);
        look(held.back(), indices_ok);
      }
    else if (v.isOptionalTensorList())
      for (const auto& t : v.toOptionalTensorVector())
        if (t) {
          held.push_back(*t);
          look(held.back(), indices_ok);
        }
  }
  if (here && cpu) {
    wrong++;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                *here, " and cpu! (", name.name, ")");
  }
  if (name.name == "aten::nonzero" || name.name == "aten::masked_select" || name.name == "aten::bincount" ||
      name.name == "aten::equal" || name.name == "aten::is_nonzero")
    count("sync by " + name.name);
  count(name.name);
  const c10::DeviceGuard g(here ? *here : c10::Device(PU1, current));
  // The CPU's kernel works on the same memory: what it changes without saying so (running statistics) is
  // changed here, too.
  const auto& schema = op.schema();
  const size_t n = schema.arguments().size(), begin = stack->size() - n;
  std::vector<std::pair<at::Tensor, at::Tensor>> twins;
  auto twin = [&](const at::Tensor& t) {
    if (!t.defined() || t.device().type() != PU1) return t;
    for (auto& [mine, theirs] : twins)
      if (mine.is_same(t)) return theirs;
    at::Tensor theirs =
        t.numel() ? as_cpu(t) : at::empty(t.sizes(), t.options().device(at::kCPU));  // an `out` may grow
    if (t.is_conj()) theirs._set_conj(true);
    if (t.is_neg()) theirs._set_neg(true);
    twins.emplace_back(t, theirs);
    return theirs;
  };
  for (size_t i = 0; i < n; i++) {
    auto& v = (*stack)[begin + i];
    if (v.isTensor())
      v = twin(v.toTensor());
    else if (v.isTensorList()) {
      std::vector<at::Tensor> l;
      for (const auto& t : v.toTensorVector()) l.push_back(twin(t));
      v = l;
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> l;
      for (const auto& t : v.toOptionalTensorVector())
        l.push_back(t ? std::optional<at::Tensor>(twin(*t)) : std::nullopt);
      v = l;
    } else if (v.isDevice())
      v = c10::Device(at::kCPU);
  }
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  } catch (const c10::IndexError&) {
    poisoned = true;
    answer();
  }
  const c10::Device target = here ? *here : c10::Device(PU1, current);
  auto back = [&](const at::Tensor& t) -> at::Tensor {
    if (!t.defined() || !t.is_cpu()) return t;
    for (auto& [mine, theirs] : twins) {
      if (theirs.is_same(t)) {
        if (t.numel() && (mine.sizes() != t.sizes() || t.data_ptr() != mine.data_ptr())) {
          at::native::resize_(mine, t.sizes(), std::nullopt);
          as_cpu(mine).copy_(t);
        }
        return mine;
      }
    }
    for (auto& [mine, theirs] : twins)
      if (t.storage().unsafeGetStorageImpl() == theirs.storage().unsafeGetStorageImpl())
        return mine.as_strided(t.sizes(), t.strides(),
                               mine.storage_offset() + (static_cast<char*>(t.data_ptr()) -
                                                        static_cast<char*>(mine.data_ptr())) /
                                                           (int64_t)t.itemsize());
    at::Tensor made =
        at::empty_strided(t.sizes(), t.strides(), t.options().device(target).requires_grad(false));
    as_cpu(made).copy_(t);
    return made;
  };
  for (size_t i = begin; i < stack->size(); i++) {
    auto& v = (*stack)[i];
    if (v.isTensor() && odd && rounded.count(name.name)) v.toTensor().mul_(1 + 0x1p-20);
    if (v.isTensor())
      v = back(v.toTensor());
    else if (v.isTensorList()) {
      std::vector<at::Tensor> l;
      for (const auto& t : v.toTensorVector()) l.push_back(back(t));
      v = l;
    }
  }
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("resize_", resize_);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("view", view);
  m.impl("set_.source_Tensor", set_t);
  m.impl("set_.source_Storage", set_s);
  m.impl("set_.source_Storage_storage_offset", set_so);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
std::string told;
}  // namespace
extern "C" {
int fake_devices() { return devices(); }
int fake_current() { return current; }
void fake_set(int index) { current = index; }
bool fake_finish() {
  count("synchronize");
  return !poisoned;
}
void fake_odd(bool now) { odd = now; }
const char* fake_told() {
  std::lock_guard<std::mutex> g(lock);
  told.clear();
  for (auto& [k, n] : counts)
    if (n) told += k + "\t" + std::to_string(n) + "\n";
  told += "H2D bytes\t" + std::to_string(h2d) + "\nD2H bytes\t" + std::to_string(d2h) + "\nlive bytes\t" +
          std::to_string(live) + "\npeak bytes\t" + std::to_string(peak) + "\n";
  return told.c_str();
}
void fake_reset() {
  std::lock_guard<std::mutex> g(lock);
  counts.clear();
  h2d = d2h = 0;
  peak = live;
}
}
