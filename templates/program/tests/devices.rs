//! The same on every device that is here.

use device_registry::device_list;
use device_tensor::Tensor;

device_registry::autoload!();

#[test]
fn a_tensor_keeps_its_elements_on_every_device() {
    let list = device_list();
    let mut count = 0;
    for listed in list.devices().filter(|listed| listed.is_present()) {
        let x = Tensor::new([0.5, -2.0], listed.device()).unwrap();
        assert_eq!(x.to_vec::<f64>().unwrap(), [0.5, -2.0], "{}", listed.device());
        count += 1;
    }
    assert!(count > 0, "{list}");
}
