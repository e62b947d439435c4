//! What a program sees: the operator by its name, and errors.

use device_kernels::{DType, Operand, RunError, operator, run};
use device_registry::{Device, device};

device_registry::autoload!();

fn numbers(device: Device, dtype: DType, numbers: &[f32]) -> device_registry::Buffer {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let buffer = device.allocate(bytes.len() * dtype.size() / 4).unwrap();
    buffer.write(0, &bytes).unwrap();
    buffer
}

#[test]
fn two_limits_in_turns_are_two_plans() {
    for name in ["cpu", "openreg:1"] {
        let device = device(name).unwrap();
        let stream = device.create_stream().unwrap();
        let (gate, value) =
            (numbers(device, DType::F32, &[9.0, -1.0]), numbers(device, DType::F32, &[9.0, -9.0]));
        let out = numbers(device, DType::F32, &[0.0; 2]);
        let [gate, value, result] =
            [&gate, &value, &out].map(|buffer| Operand::new(buffer, DType::F32, [2]).unwrap());
        for limit in [1.0_f32, 4.0, 1.0, 4.0] {
            run(&stream, swiglu::swiglu(limit.into()).unwrap(), &[gate, value], &[result]).unwrap();
            let read = stream.read(&out, ..).unwrap().wait().unwrap();
            let first = f32::from_ne_bytes(read[..4].try_into().unwrap());
            let expected = limit / (1.0 + (-limit).exp()) * limit;
            assert!((first - expected).abs() < 1e-5, "{name}, {limit}: {first}");
        }
    }
}

#[test]
fn errors_name_the_operator_its_options_and_the_sets() {
    let device = Device::cpu();
    let stream = device.create_stream().unwrap();
    let buffer = numbers(device, DType::F64, &[0.0; 4]);
    let call = |limit: f64, dtype| {
        let operand = Operand::new(&buffer, dtype, [2]).unwrap();
        let out = numbers(device, DType::F64, &[0.0; 4]);
        let out = Operand::new(&out, dtype, [2]).unwrap();
        run(&stream, swiglu::swiglu(limit).unwrap(), &[operand, operand], &[out]).unwrap_err()
    };
    assert_eq!(
        call(-1.0, DType::F32).to_string(),
        "acme__swiglu<limit -1.0>(f32 [2], f32 [2]) -> f32 [2]: expected a number above 0 as the limit, found -1"
    );
    let error = call(7.0, DType::F64);
    assert!(matches!(error, RunError::Unsupported { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("acme__swiglu<limit 7.0>(f64 [2], f64 [2])"), "{error}");
    assert!(error.contains("cpu__swiglu (swiglu 0.1.0)"), "{error}");
    let error = operator("acme__swigl").unwrap_err().to_string();
    assert!(error.contains("acme__swiglu"), "{error}");
}
