//! The list of devices as JSON is what `docs/devices.schema.json` says: that of every linked backend, and of
//! backends that are absent, broken, disabled, or hold devices in every state.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use device_registry::backend::{
    Backend, BackendDescriptor, BackendError, LoadFailure, MemoryReuse, OpenedDevice, Version, samples,
};
use device_registry::registry::{Switches, groups};
use device_registry::{DeviceList, DeviceProperties, Fault, Presence, backends, device, device_list};
use jsonschema::Validator;
use serde_json::{Value, json};

device_registry::autoload!();

static ABSENT: BackendDescriptor =
    BackendDescriptor::new("json_absent", || Err(LoadFailure::unavailable("no driver")));
static FAILS: BackendDescriptor = BackendDescriptor::new("json_fails", || {
    Err(LoadFailure::new("no table").with_source(std::io::Error::other("disk on fire")))
});
static PANICS: BackendDescriptor = BackendDescriptor::new("json_panics", || panic!("on purpose"));
static OFF: BackendDescriptor = BackendDescriptor::new("json_off", || panic!("it is disabled"));
static ODD: BackendDescriptor = BackendDescriptor::new("json_odd", || Ok(Box::new(Odd)));

/// A backend whose devices are broken, each in its way.
struct Odd;

const FILLED: usize = 0;
const ABSENT_DEVICE: usize = 1;
const PANICS_IN_PROPERTIES: usize = 2;
const CANNOT_LOOK: usize = 3;
const FLOODS: usize = 4;
const REUSES: usize = 5;

impl Backend for Odd {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(REUSES + samples::memory_reuses().count())
    }

    fn presence(&self, ordinal: usize) -> Result<Presence, BackendError> {
        match ordinal {
            ABSENT_DEVICE => Ok(Presence::absent("no server at \"127.0.0.1:9\"\n\u{1b}[31m")),
            CANNOT_LOOK => Err(BackendError::other("cannot look").with_source("the cause")),
            _ => Ok(Presence::Present),
        }
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        match ordinal {
            FILLED => Ok(samples::filled_properties()),
            PANICS_IN_PROPERTIES => panic!("on purpose"),
            FLOODS => Ok((0..100_000).fold(DeviceProperties::new("floods"), |properties, number| {
                properties.with_attribute(&format!("a{number}"), u64::MAX)
            })),
            _ => {
                let reuse = samples::memory_reuses().nth(ordinal.saturating_sub(REUSES));
                Ok(DeviceProperties::new("odd").with_memory_reuse(reuse.unwrap_or(MemoryReuse::Never)))
            }
        }
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Err(BackendError::unsupported("it cannot be opened"))
    }
}

/// The list of this process, after each kind of device was there.
static LIST: LazyLock<(DeviceList, Value)> = LazyLock::new(|| {
    let switches = Switches { disable: vec!["json_off".into()], ..Switches::default() };
    backends().configure(switches).unwrap();
    for backend in [&ABSENT, &FAILS, &PANICS, &OFF, &ODD] {
        backends().register(backend).unwrap();
    }
    backends().set_option("openreg", "devices", "2").unwrap();
    let _in_use = device("cpu").unwrap().allocate(100).unwrap();
    let lost = device("openreg:1").unwrap();
    lost.faults().unwrap().inject(Fault::Unplug).unwrap();
    let list = device_list();
    let json = serde_json::to_value(&list).unwrap();
    (list, json)
});

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/devices.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The schema without room for fields that it does not have: programs of a later version may add some, and
/// this version may not.
fn strict(mut schema: Value) -> Value {
    fn close(schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                fields.values_mut().for_each(close);
                // In the schema of a field called so, it is an object as well.
                if fields.get("properties").is_some_and(Value::is_object) && fields.contains_key("required") {
                    fields.insert("additionalProperties".to_owned(), false.into());
                }
            }
            Value::Array(items) => items.iter_mut().for_each(close),
            _ => {}
        }
    }
    close(&mut schema);
    schema
}

fn violations(validator: &Validator, document: &Value) -> Vec<String> {
    let errors = validator.iter_errors(document);
    errors.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn of<'a>(document: &'a Value, backend: &str) -> &'a Value {
    let all = document["backends"].as_array().unwrap();
    all.iter().find(|one| one["name"] == backend).unwrap_or_else(|| panic!("{backend} in {document}"))
}

#[test]
fn the_schema_is_valid_and_describes_this_version() {
    let schema = schema();
    jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(schema["properties"]["version"]["const"], DeviceList::DOCUMENT_VERSION);
}

#[test]
fn the_list_of_every_kind_of_backend_is_as_the_schema_says() {
    let (_, document) = &*LIST;
    let validator = jsonschema::validator_for(&strict(schema())).unwrap();
    let found = violations(&validator, document);
    assert!(found.is_empty(), "{}\n{document:#}", found.join("\n"));
}

#[test]
fn the_document_says_what_the_list_does() {
    let (list, document) = &*LIST;
    let names = |list: &Value| -> Vec<String> {
        let all = list.as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names(&document["backends"]),
        list.backends().iter().map(|backend| backend.name()).collect::<Vec<_>>()
    );
    assert_eq!(document["report"]["group"], "device.backends");
    assert_eq!(document["version"], 1);

    let cpu = &of(document, "cpu")["devices"][0];
    assert_eq!(
        (&cpu["device"], &cpu["open"], &cpu["properties"]["kind"]),
        (&json!("cpu"), &json!(true), &json!("cpu"))
    );
    assert!(cpu["statistics"]["peak"].as_u64().unwrap() >= 100);
    let openreg = of(document, "openreg")["devices"].as_array().unwrap();
    assert_eq!(openreg[0]["presence"], json!({"kind": "present"}));
    assert_eq!((&openreg[0]["open"], &openreg[0]["memory"]), (&json!(false), &Value::Null));
    assert_eq!(openreg[1]["presence"]["kind"], "lost");
    assert_eq!((&openreg[1]["open"], &openreg[1]["memory"]), (&json!(true), &Value::Null));
    assert!(openreg[1]["errors"][0].as_str().unwrap().contains("device lost"), "{}", openreg[1]);

    assert_eq!(of(document, "json_absent")["state"]["kind"], "unavailable");
    assert!(
        of(document, "json_absent")["errors"][0].as_str().unwrap().ends_with("is unavailable: no driver")
    );
    assert_eq!(of(document, "json_fails")["state"]["errors"][1], "disk on fire");
    assert_eq!(of(document, "json_fails")["errors"][1], "disk on fire");
    assert_eq!(of(document, "json_panics")["state"]["kind"], "failed");
    assert_eq!(of(document, "json_off")["state"]["kind"], "disabled");
    assert_eq!(
        (&of(document, "json_off")["errors"], &of(document, "json_off")["devices"]),
        (&json!([]), &json!([]))
    );

    let odd = of(document, "json_odd")["devices"].as_array().unwrap();
    let filled = &odd[FILLED]["properties"];
    assert_eq!(filled["api"], json!({"name": "An API", "version": {"major": 1, "minor": 2}}));
    assert_eq!(filled["attributes"]["number"], -7);
    assert_eq!(filled["compute_capability"], json!({"major": 8, "minor": 9}));
    assert_eq!(
        odd[ABSENT_DEVICE]["presence"],
        json!({"kind": "absent", "errors": ["no server at \"127.0.0.1:9\"\n\u{1b}[31m"]})
    );
    assert_eq!(odd[PANICS_IN_PROPERTIES]["properties"], Value::Null);
    assert!(odd[PANICS_IN_PROPERTIES]["errors"][0].as_str().unwrap().contains("on purpose"));
    assert_eq!(odd[CANNOT_LOOK]["presence"], Value::Null);
    assert_eq!(odd[CANNOT_LOOK]["errors"].as_array().unwrap().last().unwrap(), "the cause");
    let floods = &odd[FLOODS]["properties"];
    assert_eq!(floods["attributes"].as_object().unwrap().len(), 64);
    assert_eq!(floods["attributes_left_out"], 100_000 - 64);
}

/// What the schema would not notice, no program could rely on.
#[test]
fn a_document_that_lacks_a_field_or_has_another_type_there_is_refused() {
    let (_, document) = &*LIST;
    let (open, closed) = (schema(), strict(schema()));
    let validator = jsonschema::validator_for(&open).unwrap();
    let strict = jsonschema::validator_for(&closed).unwrap();
    let mut tried = 0;
    /// The places of all objects in a value.
    fn objects(value: &Value, at: String, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| objects(value, format!("{at}/{name}"), found));
                found.push(at);
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, item)| objects(item, format!("{at}/{n}"), found));
            }
            _ => {}
        }
    }
    let mut small = document.clone();
    // One backend of each kind, since each object costs a validation of the whole.
    let kept = ["cpu", "json_absent", "json_off", "json_odd", "openreg"];
    small["backends"].as_array_mut().unwrap().retain(|one| kept.contains(&one["name"].as_str().unwrap()));
    small["report"]["entries"].as_array_mut().unwrap().truncate(2);
    let odd = small["backends"].as_array_mut().unwrap().iter_mut().find(|one| one["name"] == "json_odd");
    odd.unwrap()["devices"].as_array_mut().unwrap().retain(|one| one["device"] != "json_odd:4");
    assert!(validator.is_valid(&small));
    let mut places = Vec::new();
    objects(&small, String::new(), &mut places);
    for place in places.iter().filter(|place| !place.ends_with("/attributes")) {
        for name in small.pointer(place).unwrap().as_object().unwrap().keys() {
            let mut without = small.clone();
            without.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(name);
            assert!(!validator.is_valid(&without), "{place} without {name}");
            let mut other = small.clone();
            other.pointer_mut(place).unwrap()[name] = json!([[0.5]]);
            assert!(!validator.is_valid(&other), "{place} with another {name}");
            tried += 2;
        }
        let mut more = small.clone();
        more.pointer_mut(place).unwrap()["added"] = json!(1);
        assert!(validator.is_valid(&more), "{place}: a later version may add fields");
        assert!(!strict.is_valid(&more), "{place}");
    }
    assert!(tried > 400, "{tried}");
}

#[test]
fn groups_of_other_crates_are_listed_used_or_not() {
    let groups = groups();
    let backends = groups.get("device.backends").unwrap();
    assert_eq!(backends.interface(), "dyn device_registry::backend::Backend");
    assert!(backends.rows().iter().any(|row| row.name == "openreg"));
    // Declared by device-plugin, which this program links and does not use.
    assert!(groups.get("device.file_groups").is_some(), "{groups}");
    assert_eq!(serde_json::to_value(&groups).unwrap()[0]["group"], groups.reports()[0].group());
}

#[test]
fn a_version_is_compared_by_its_numbers() {
    let version = serde_json::to_value(Version::new(8, 10)).unwrap();
    assert_eq!(version, json!({"major": 8, "minor": 10}));
}
