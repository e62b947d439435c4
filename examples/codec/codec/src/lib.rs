//! Decodes PNG pictures to tensors on any device, by decoders that register themselves.
//!
//! It is a framework beside `device-tensor`, with a group of entry points of its own: `codec.decoders`, keyed
//! by the name of the device's backend. A linked decoder has no effect until a program uses its device. A
//! device without a decoder is an error: `decode` never uses another device.
//!
//! ```
//! use device_registry::device;
//!
//! # fn example(bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let picture = codec::decode(bytes, None)?; // on the default device: the cpu, until it is set
//! let picture = codec::decode(bytes, device("acme:1")?)?; // by the decoder for `acme`, into its memory
//! println!("{:?} on {}", picture.shape(), picture.device()); // [3, 480, 640] on acme:1
//! # Ok(())
//! # }
//! ```
//!
//! # Writing a decoder
//!
//! A decoder is a crate, by custom called `codec-NAME`, that registers itself in [`DECODERS`] by
//! [`entry_points!`]: `codec-openreg` is one. The program says `device_registry::autoload!();` once. That
//! line links backends and decoders alike.
//!
//! A decoder can also be in a file that the program finds while it runs: see [`files`].

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod c_interface;
mod decode;
mod decoder;
mod error;
#[allow(unsafe_code)]
pub mod files;
mod picture;

/// Written here as `codec::entry_points! { … }`, with [`DECODERS`] as the group.
#[doc(inline)]
pub use entry_points::entry_points;
pub use entry_points::{Group, LoadError, LoadFailure};

pub use crate::decode::decode;
pub use crate::decoder::{DECODERS, Decoder, DecoderDescriptor, decoders};
pub use crate::error::DecodeError;
pub use crate::picture::Picture;
