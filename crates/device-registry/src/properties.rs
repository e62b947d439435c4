//! What a device says of itself.

/// What a device is: facts that do not change while the program runs.
///
/// A driver builds one; more facts will be added, so that the fields can be read but the struct is made by its
/// builder.
///
/// ```
/// use device_registry::DeviceProperties;
///
/// let properties = DeviceProperties::new("Example 9000").with_driver("example 1.2");
/// assert_eq!(properties.name, "Example 9000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The device's name, for people: a model, not a device string.
    pub name: String,
    /// The driver and its version, if there is one.
    pub driver: Option<String>,
}

impl DeviceProperties {
    /// Properties of a device called `name`, with all else unknown.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), driver: None }
    }

    /// Adds the driver and its version.
    #[must_use]
    pub fn with_driver(mut self, driver: impl Into<String>) -> Self {
        self.driver = Some(driver.into());
        self
    }
}

/// A device's memory, in bytes, at the moment of asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// All memory that the device has, if it is known.
    pub total: Option<u64>,
    /// What is free now, if it is known. Another thread or process may take it at any time.
    pub free: Option<u64>,
}

impl MemoryInfo {
    /// Nothing is known.
    #[must_use]
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Sets the total.
    #[must_use]
    pub fn with_total(mut self, bytes: u64) -> Self {
        self.total = Some(bytes);
        self
    }

    /// Sets what is free.
    #[must_use]
    pub fn with_free(mut self, bytes: u64) -> Self {
        self.free = Some(bytes);
        self
    }
}
