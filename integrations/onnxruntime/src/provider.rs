//! The provider of a session: which nodes it takes, and their kernels.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::fmt::Write as _;
use std::ptr;
use std::sync::OnceLock;

use device_kernels::{Coverage, Kernels, MAX_RANK};
use device_registry::{ErrorChain, activity};
use ort_sys::{OrtGraph, OrtKernelContext, OrtKernelInfo, OrtLogger, OrtMemType, OrtNode, OrtStatusPtr};
use parking_lot::Mutex;

use crate::abi::{Ep, GraphSupportInfo, KernelImpl, KernelRegistry, ProfilerImpl, VERSION};
use crate::api::{Api, borrowed, text};
use crate::choice;
use crate::context::Context;
use crate::control;
use crate::counts;
use crate::failure::Failure;
use crate::node::{self, Node};
use crate::operators::{OutputMemory, Plan, Row, Run, Way, row_of, rows};
use crate::place::Place;
use crate::profiler;

/// The provider of one session. ONNX Runtime sees its table, which is first.
#[repr(C)]
pub(crate) struct Provider {
    table: Ep,
    api: Api,
    place: &'static Place,
    logger: *const OrtLogger,
    kernels: *mut KernelRegistry,
    /// What each kernel needs to be made.
    #[expect(clippy::vec_box, reason = "the registry has pointers to them")]
    makers: Vec<Box<Maker>>,
    seen: Mutex<Seen>,
    /// What the kernels of the device cover, once it was asked for.
    coverage: OnceLock<Vec<Coverage>>,
}

/// What became of the nodes of a session.
#[derive(Default)]
struct Seen {
    /// By the graph. ONNX Runtime asks again after it has changed one, and the last answer counts.
    graphs: BTreeMap<String, OfGraph>,
    /// The first failure, which is returned at the end of the initialization: ONNX Runtime would not show it.
    failure: Option<Failure>,
}

#[derive(Default)]
struct OfGraph {
    taken: usize,
    /// The operators of nodes that were left, with the reason.
    left: Vec<(String, String)>,
}

/// Makes the kernels of an operator.
struct Maker {
    api: Api,
    place: &'static Place,
    row: Option<&'static Row>,
}

impl Provider {
    /// A provider that ONNX Runtime owns, until it gives it to [`release`](Self::release). It never fails:
    /// Python would compute on the CPU then, with a line on the standard output.
    pub(crate) fn create(api: Api, place: &'static Place, logger: *const OrtLogger) -> *mut Ep {
        let table = Ep {
            ort_version_supported: VERSION,
            GetName: Some(name),
            GetCapability: Some(capability),
            Compile: None,
            ReleaseNodeComputeInfos: None,
            GetPreferredDataLayout: None,
            ShouldConvertDataLayoutForOp: None,
            SetDynamicOptions: None,
            OnRunStart: None,
            OnRunEnd: None,
            CreateAllocator: None,
            CreateSyncStreamForDevice: None,
            GetCompiledModelCompatibilityInfo: None,
            GetKernelRegistry: Some(kernel_registry),
            IsConcurrentRunSupported: Some(is_concurrent),
            Sync: Some(sync),
            CreateProfiler: Some(create_profiler),
            IsGraphCaptureEnabled: None,
            IsGraphCaptured: None,
            ReplayGraph: None,
            GetGraphCaptureNodeAssignmentPolicy: None,
            GetAvailableResource: None,
            OnSessionInitializationEnd: Some(initialization_end),
            GetDefaultMemoryDevice: None,
            ReleaseCapturedGraph: None,
        };
        let mut provider = Box::new(Self {
            table,
            api,
            place,
            logger,
            kernels: ptr::null_mut(),
            makers: Vec::new(),
            seen: Mutex::default(),
            coverage: OnceLock::new(),
        });
        let found = crate::api::caught(|| provider.register());
        if let Err(failure) = found {
            provider.seen.lock().failure = Some(failure.of("registering kernels"));
        }
        Box::into_raw(provider).cast()
    }

    /// # Safety
    ///
    /// `provider` is one of [`create`](Self::create), and is not used again.
    pub(crate) unsafe fn release(provider: *mut Ep) {
        // SAFETY: see above.
        let provider = unsafe { Box::from_raw(provider.cast::<Self>()) };
        if !provider.kernels.is_null() {
            // SAFETY: it is the provider's own, and no kernel is made any more.
            unsafe { (provider.api.ep.ReleaseKernelRegistry)(provider.kernels) };
        }
    }

    /// # Safety
    ///
    /// `table` is one of [`create`](Self::create).
    unsafe fn of<'a>(table: *const Ep) -> &'a Self {
        // SAFETY: see above. The table is first.
        unsafe { &*table.cast() }
    }

    /// Registers the kernels of all operators.
    fn register(&mut self) -> Result<(), Failure> {
        let mut kernels = ptr::null_mut();
        // SAFETY: there is room for a pointer.
        self.api.check(unsafe { (self.api.ep.CreateKernelRegistry)(&raw mut kernels) })?;
        self.kernels = kernels;
        for row in rows() {
            let inputs = row.host.iter().map(|&at| (at, true));
            let memory: Vec<_> = inputs.chain(row.has_host_output.then_some((0, false))).collect();
            self.add(row.name, row.first, row.last, &memory, Some(row))?;
        }
        // ONNX Runtime's own would put the output of the first into memory of the host.
        self.add("MemcpyFromHost", 1, 1000, &[(0, true)], None)?;
        self.add("MemcpyToHost", 1, 1000, &[(0, false)], None)
    }

    /// Registers the kernel of an operator; `memory` lists the inputs (or with `false` outputs) on the host.
    fn add(
        &mut self,
        name: &str,
        first: i32,
        last: i32,
        memory: &[(usize, bool)],
        row: Option<&'static Row>,
    ) -> Result<(), Failure> {
        let api = self.api;
        let maker = Box::new(Maker { api, place: self.place, row });
        let mut builder = ptr::null_mut();
        let mut definition = ptr::null_mut();
        // SAFETY: all are texts, which are copied, and what was made here before. The maker stays as long as
        // the registry.
        unsafe {
            api.check((api.ep.CreateKernelDefBuilder)(&raw mut builder))?;
            let mut build = || {
                api.check((api.ep.KernelDefBuilder_SetOperatorType)(builder, text(name).as_ptr()))?;
                api.check((api.ep.KernelDefBuilder_SetDomain)(builder, c"".as_ptr()))?;
                api.check((api.ep.KernelDefBuilder_SetSinceVersion)(builder, first, last))?;
                let provider = self.place.name.as_ptr();
                api.check((api.ep.KernelDefBuilder_SetExecutionProvider)(builder, provider))?;
                for &(at, is_input) in memory {
                    api.check(if is_input {
                        let host = OrtMemType::OrtMemTypeCPUInput;
                        (api.ep.KernelDefBuilder_SetInputMemType)(builder, at, host)
                    } else {
                        let host = OrtMemType::OrtMemTypeCPUOutput;
                        (api.ep.KernelDefBuilder_SetOutputMemType)(builder, at, host)
                    })?;
                }
                let memory = row.map_or(OutputMemory::Own, |row| row.output_memory);
                let inputs = [0, 1];
                let outputs = [0, 0];
                match memory {
                    OutputMemory::Own => {}
                    OutputMemory::FirstInput => {
                        api.check((api.ep.KernelDefBuilder_AddInputOutputAliases)(
                            builder,
                            inputs.as_ptr(),
                            outputs.as_ptr(),
                            1,
                        ))?
                    }
                    OutputMemory::AnyInput(count) => {
                        let add = api.ep.KernelDefBuilder_AddInputOutputMutableAliases;
                        api.check(add(builder, inputs.as_ptr(), outputs.as_ptr(), count.min(2)))?;
                    }
                }
                api.check((api.ep.KernelDefBuilder_Build)(builder, &raw mut definition))
            };
            let built = build();
            (api.ep.ReleaseKernelDefBuilder)(builder);
            built?;
            let state = ptr::from_ref(&*maker).cast_mut().cast::<c_void>();
            let added = (api.ep.KernelRegistry_AddKernel)(self.kernels, definition, make_kernel, state);
            (api.ep.ReleaseKernelDef)(definition);
            api.check(added)?;
        }
        self.makers.push(maker);
        Ok(())
    }

    /// Says which nodes of a graph are computed on the device.
    fn take(&self, graph: *const OrtGraph, support: *mut GraphSupportInfo) -> Result<(), Failure> {
        let api = self.api;
        let mut count = 0;
        // SAFETY: the graph is alive during the call, and there is room for what is asked.
        let nodes = unsafe {
            api.check((api.ort.Graph_GetNumNodes)(graph, &raw mut count))?;
            let mut nodes = vec![ptr::null(); count];
            api.check((api.ort.Graph_GetNodes)(graph, nodes.as_mut_ptr(), count))?;
            nodes
        };
        let key = self.key_of(graph)?;
        let mut seen = OfGraph::default();
        for node in nodes {
            if self.is_another_ones(node)? {
                continue;
            }
            match self.plan_of(node) {
                Ok(()) => {
                    // SAFETY: the node is of the graph.
                    api.check(unsafe { (api.ep.EpGraphSupportInfo_AddSingleNode)(support, node) })?;
                    seen.taken += 1;
                }
                Err((operator, why)) => seen.left.push((operator, why)),
            }
        }
        self.seen.lock().graphs.insert(key, seen);
        Ok(())
    }

    /// What identifies a graph of the session: its name and the names of its outputs, as both branches of
    /// an `If` may have one name.
    fn key_of(&self, graph: *const OrtGraph) -> Result<String, Failure> {
        let api = self.api;
        let mut name = ptr::null();
        let mut count = 0;
        // SAFETY: the graph is alive, and there is room for what is asked.
        unsafe {
            api.check((api.ort.Graph_GetName)(graph, &raw mut name))?;
            api.check((api.ort.Graph_GetNumOutputs)(graph, &raw mut count))?;
            let mut outputs = vec![ptr::null(); count];
            api.check((api.ort.Graph_GetOutputs)(graph, outputs.as_mut_ptr(), count))?;
            let mut key = borrowed(name).to_owned();
            for output in outputs {
                api.check((api.ort.GetValueInfoName)(output, &raw mut name))?;
                let _ = write!(key, " {}", borrowed(name));
            }
            Ok(key)
        }
    }

    /// Whether a provider before this one has taken the node.
    fn is_another_ones(&self, node: *const OrtNode) -> Result<bool, Failure> {
        let mut name = ptr::null();
        // SAFETY: the node is of the graph, and there is room for a pointer.
        let name = unsafe {
            self.api.check((self.api.ort.Node_GetEpName)(node, &raw mut name))?;
            borrowed(name)
        };
        Ok(!name.is_empty() && name.as_bytes() != self.place.name.as_bytes())
    }

    /// Whether a node can be computed, or its operator and why it cannot.
    fn plan_of(&self, node: *const OrtNode) -> Result<(), (String, String)> {
        let mut operator = ptr::null();
        let mut domain = ptr::null();
        // SAFETY: the node is of the graph, and there is room for what is asked.
        let (operator, domain) = unsafe {
            let status = (self.api.ort.Node_GetOperatorType)(node, &raw mut operator);
            let _ = self.api.check(status);
            let status = (self.api.ort.Node_GetDomain)(node, &raw mut domain);
            let _ = self.api.check(status);
            (borrowed(operator).to_owned(), borrowed(domain).to_owned())
        };
        let plan = if !domain.is_empty() && domain != "ai.onnx" {
            Err(Failure::new(format_args!("it is of `{domain}`")))
        } else {
            // SAFETY: see above.
            let node = unsafe { Node::of_graph(self.api, node) };
            let plan = node.and_then(|node| {
                node.check_ranks()?;
                (row_of(&node)?.prepare)(&node)
            });
            plan.and_then(|plan| self.check_covered(&plan))
        };
        plan.map_err(|failure| (operator, failure.message().to_owned()))
    }

    /// Declines unless the kernels of the device cover the operators for any shape that may come.
    fn check_covered(&self, plan: &Plan) -> Result<(), Failure> {
        let device = self.place.device;
        let kernels = Kernels::of(device).map_err(|error| Failure::new(ErrorChain::new(&error)))?;
        let coverage = self.coverage.get_or_init(|| {
            let mut coverage: Vec<_> =
                kernels.sets().iter().flat_map(|set| set.set().coverage(device)).collect();
            coverage.retain(|coverage| {
                let limits = coverage.limits();
                let is_any_size = limits.max_rank >= MAX_RANK && limits.max_elements == usize::MAX;
                is_any_size && !limits.contiguous && !limits.arrays_only
            });
            coverage
        });
        let is_covered = |name: &str, dtype| {
            coverage.iter().any(|coverage| coverage.operator() == name && coverage.types().contains(dtype))
        };
        match plan.needs.iter().find(|(name, dtype)| !is_covered(name, *dtype)) {
            Some((name, dtype)) => {
                Err(Failure::new(format_args!("`{device}` has no kernel for `{name}` of {dtype}")))
            }
            None => Ok(()),
        }
    }
}

unsafe extern "system" fn name(table: *const Ep) -> *const c_char {
    // SAFETY: a table of this module, as in all functions here.
    unsafe { Provider::of(table) }.place.name.as_ptr()
}

unsafe extern "system" fn capability(
    table: *mut Ep,
    graph: *const OrtGraph,
    support: *mut GraphSupportInfo,
) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let provider = unsafe { Provider::of(table) };
    let taken = crate::api::caught(|| provider.take(graph, support));
    if let Err(failure) = &taken {
        provider.seen.lock().failure.get_or_insert_with(|| failure.clone());
    }
    provider.api.status(taken)
}

unsafe extern "system" fn kernel_registry(
    table: *mut Ep,
    kernels: *mut *const KernelRegistry,
) -> OrtStatusPtr {
    // SAFETY: see `name`; there is room for a pointer.
    unsafe { *kernels = Provider::of(table).kernels };
    OrtStatusPtr(ptr::null_mut())
}

unsafe extern "system" fn is_concurrent(_: *mut Ep, is_supported: *mut bool) -> OrtStatusPtr {
    // SAFETY: there is room for it.
    unsafe { *is_supported = true };
    OrtStatusPtr(ptr::null_mut())
}

unsafe extern "system" fn sync(table: *mut Ep) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let provider = unsafe { Provider::of(table) };
    provider.api.guard(|| provider.place.wait_for_runs())
}

unsafe extern "system" fn create_profiler(table: *mut Ep, created: *mut *mut ProfilerImpl) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let provider = unsafe { Provider::of(table) };
    // SAFETY: there is room for a pointer.
    unsafe { *created = profiler::create(provider.api, provider.place) };
    OrtStatusPtr(ptr::null_mut())
}

/// The end of the making of a session: the one place whose errors reach every program.
unsafe extern "system" fn initialization_end(table: *mut Ep) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let provider = unsafe { Provider::of(table) };
    let device = provider.place.device;
    provider.api.guard(|| {
        // A device that cannot be opened is an error here, and not at the first run; so is one that this
        // process may not use any more.
        provider.place.open()?;
        let seen = std::mem::take(&mut *provider.seen.lock());
        if let Some(failure) = seen.failure {
            return Err(failure.of(format_args!("`{device}`")));
        }
        let taken: usize = seen.graphs.values().map(|graph| graph.taken).sum();
        let all_left: Vec<_> = seen.graphs.into_values().flat_map(|graph| graph.left).collect();
        counts::add(device, taken, &all_left);
        if all_left.is_empty() {
            return Ok(());
        }
        let mut left = String::new();
        for (operator, why) in &all_left {
            let line = format!("{operator}: {why}");
            if !left.contains(&line) {
                let _ = write!(left, "{}{line}", if left.is_empty() { "" } else { "; " });
            }
        }
        let all = taken + all_left.len();
        let message = format!("`{device}` computes {taken} of {all} nodes; of the others, {left}");
        if !choice::may_fall_back().map_err(Failure::new)? {
            return Err(Failure::new(format_args!("{message} (DEVICE_ORT_FALLBACK is `deny`)")));
        }
        if taken == 0 {
            // SAFETY: the logger lives as long as the session.
            unsafe { provider.api.warn(provider.logger, &message) };
        }
        Ok(())
    })
}

/// The kernel of a node. ONNX Runtime sees its table, which is first.
#[repr(C)]
struct Kernel {
    table: KernelImpl,
    api: Api,
    place: &'static Place,
    /// What it is called in traces: the node's name, or its operator if it has none.
    name: String,
    /// The operator and how it is computed; `None` for a copy between the host and the device.
    run: Option<(&'static str, Run)>,
}

unsafe extern "system" fn make_kernel(
    state: *mut c_void,
    info: *const OrtKernelInfo,
    kernel: *mut *mut KernelImpl,
) -> OrtStatusPtr {
    // SAFETY: the state is a maker, which lives as long as the registry.
    let maker = unsafe { &*state.cast::<Maker>() };
    maker.api.guard(|| {
        // SAFETY: the description is alive during the call.
        let name = unsafe { node::name_of_kernel(maker.api, info) }?;
        let run = match maker.row {
            Some(row) => {
                // SAFETY: see above.
                let node = unsafe { Node::of_kernel(maker.api, info, row.attributes)? };
                let plan = (row.prepare)(&node).map_err(|failure| failure.of(row.name))?;
                match plan.way {
                    Way::Run(run) => Some((row.name, run)),
                    // SAFETY: see above, and there is room for a pointer.
                    Way::Control(control) => unsafe {
                        return control::create_kernel(maker.api, maker.place, control, info, kernel);
                    },
                }
            }
            None => None,
        };
        let table = KernelImpl {
            ort_version_supported: VERSION,
            flags: 0,
            Compute: Some(compute),
            Release: Some(release_kernel),
            PrePackWeight: None,
            SetSharedPrePackedWeight: None,
        };
        let made = Box::new(Kernel { table, api: maker.api, place: maker.place, name, run });
        // SAFETY: there is room for a pointer.
        unsafe { *kernel = Box::into_raw(made).cast() };
        Ok(())
    })
}

unsafe extern "system" fn release_kernel(kernel: *mut KernelImpl) {
    // SAFETY: it is one of `make_kernel`, and is not used again.
    drop(unsafe { Box::from_raw(kernel.cast::<Kernel>()) });
}

unsafe extern "system" fn compute(kernel: *mut KernelImpl, context: *mut OrtKernelContext) -> OrtStatusPtr {
    // SAFETY: it is one of `make_kernel`. Several threads may be here at once, so that it is only read.
    let kernel = unsafe { &*kernel.cast::<Kernel>() };
    kernel.api.guard(|| {
        // SAFETY: the context is alive during the call.
        let context = unsafe { Context::new(kernel.api, kernel.place, context)? };
        let _span = activity::span(&kernel.name);
        let done = match &kernel.run {
            Some((operator, run)) => crate::api::caught(|| run(&context))
                .map_err(|failure| failure.of(format_args!("{operator} on `{}`", kernel.place.device))),
            None => context.copy_between_host_and_device(),
        };
        done.inspect_err(|_| context.stream().forget_failures())
    })
}
