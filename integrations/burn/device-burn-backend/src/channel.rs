//! Connects burn's router with the clients of the devices.

use burn_backend::{DType, Shape};
use burn_ir::TensorIr;
use burn_router::{BackendRouter, MultiBackendBridge, RouterChannel, RouterTensor};

use crate::client::RegistryClient;
use crate::device::RegistryDevice;
use crate::table::Held;

/// burn's backend: every operation on any registered device.
pub type Registry = BackendRouter<RegistryChannel>;

/// The channel to all registered devices.
#[derive(Clone, Copy, Debug)]
pub struct RegistryChannel;

impl RouterChannel for RegistryChannel {
    type Device = RegistryDevice;
    type Bridge = RegistryBridge;
    type Client = RegistryClient;

    fn name(device: &RegistryDevice) -> String {
        device.to_string()
    }

    fn init_client(device: &RegistryDevice) -> RegistryClient {
        // Runs under one of burn's spin locks: it opens nothing.
        RegistryClient::of(*device)
    }

    fn get_tensor_handle(tensor: &TensorIr, client: &RegistryClient) -> Handle {
        Handle { held: client.tensor(tensor), client: client.without_lease() }
    }

    fn register_tensor(
        client: &RegistryClient,
        handle: Handle,
        shape: Shape,
        dtype: DType,
    ) -> RouterTensor<RegistryClient> {
        let id = client.add(handle.held);
        RouterTensor::new(id, shape, dtype, client.leased(id))
    }

    /// burn's own has no arm for unsigned tensors.
    fn change_client_backend(
        tensor: RouterTensor<RegistryClient>,
        device: &RegistryDevice,
    ) -> RouterTensor<RegistryClient> {
        let client = tensor.client.clone();
        let tensor = tensor.into_ir();
        let handle = Self::get_tensor_handle(&tensor, &client).move_to(device);
        let target = handle.client.clone();
        Self::register_tensor(&target, handle, tensor.shape, tensor.dtype)
    }
}

/// A tensor between two devices.
pub struct Handle {
    held: Held,
    client: RegistryClient,
}

impl Handle {
    fn move_to(self, device: &RegistryDevice) -> Self {
        let target = burn_router::get_client::<RegistryChannel>(device);
        let held = match self.held {
            held @ Held::Failed(_) => held,
            held => self.client.move_to(held, &target),
        };
        Self { held, client: target }
    }
}

/// Moves tensors between registered devices. All kinds of tensors move alike.
#[derive(Clone, Copy, Debug)]
pub struct RegistryBridge;

impl MultiBackendBridge for RegistryBridge {
    type TensorHandle = Handle;
    type Device = RegistryDevice;

    fn change_backend_float(tensor: Handle, _: Shape, target: &RegistryDevice) -> Handle {
        tensor.move_to(target)
    }

    fn change_backend_int(tensor: Handle, _: Shape, target: &RegistryDevice) -> Handle {
        tensor.move_to(target)
    }

    fn change_backend_bool(tensor: Handle, _: Shape, target: &RegistryDevice) -> Handle {
        tensor.move_to(target)
    }
}
