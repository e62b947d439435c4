//! An encoded picture.

use std::io::Cursor;

use device_tensor::ndarray::Array3;

use crate::DecodeError;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// More are refused before any memory is taken for them: 256 MiB with four channels, and three times that at
/// the moment when they become a tensor on the cpu.
const MAX_PIXELS: u64 = 1 << 26;

/// A PNG whose header has been read: decoders get no bytes that are something else, and none that are too
/// large. The bytes after the header may still be damaged.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    bytes: &'a [u8],
    shape: [usize; 3],
}

impl<'a> Picture<'a> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`DecodeError::NotPng`], [`Damaged`](DecodeError::Damaged) or [`TooLarge`](DecodeError::TooLarge).
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if !bytes.starts_with(SIGNATURE) {
            return Err(DecodeError::NotPng { found: describe(bytes) });
        }
        let reader = reader(bytes)?;
        let (width, height) = reader.info().size();
        let channels = reader.output_color_type().0.samples();
        // Neither is above `MAX_PIXELS`.
        Ok(Self { bytes, shape: [channels, height as usize, width as usize] })
    }

    /// The bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Channels, height and width of the tensor that it is decoded to.
    #[must_use]
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The pixels, decoded on the host: for the cpu, and for what a decoder leaves to the host.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Damaged`].
    pub fn decode_on_host(&self) -> Result<Array3<u8>, DecodeError> {
        let [channels, height, width] = self.shape;
        let mut reader = reader(self.bytes)?;
        let mut pixels = vec![0; channels * height * width];
        reader.next_frame(&mut pixels).map_err(damaged)?;
        // Without this, a file that is cut off behind the pixels would pass.
        reader.finish().map_err(damaged)?;
        // A PNG has the channels of a pixel next to each other, a tensor has them outermost.
        let pixels = Array3::from_shape_vec([height, width, channels], pixels);
        Ok(pixels.expect("there are as many elements as that").permuted_axes([2, 0, 1]))
    }
}

/// Has read all that precedes the pixels, and makes 8 bits a sample of whatever there is.
fn reader(bytes: &[u8]) -> Result<png::Reader<Cursor<&[u8]>>, DecodeError> {
    let mut options = png::DecodeOptions::default();
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    // Else a damaged list of transparent colours is passed over, and the picture has a channel less.
    options.set_skip_ancillary_crc_failures(false);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(bytes), options);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let (width, height) = decoder.read_header_info().map_err(damaged)?.size();
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(DecodeError::TooLarge { width, height, max: MAX_PIXELS });
    }
    let reader = decoder.read_info().map_err(damaged)?;
    // `png` 0.18.1 panics on such a palette.
    match reader.info().palette.as_deref() {
        Some(palette) if !palette.len().is_multiple_of(3) => {
            Err(DecodeError::Damaged("the palette ends within a colour".into()))
        }
        _ => Ok(reader),
    }
}

fn damaged(error: png::DecodingError) -> DecodeError {
    DecodeError::Damaged(error.into())
}

/// Describes bytes that are not a PNG.
fn describe(bytes: &[u8]) -> String {
    match bytes {
        [] => "no bytes at all".to_owned(),
        _ if SIGNATURE.starts_with(bytes) => format!("only the first {} of these bytes", bytes.len()),
        _ => format!("`{}`", bytes[..bytes.len().min(16)].escape_ascii()),
    }
}
