//! Pictures and errors of the decoder for the cpu, which is built in.

#![allow(missing_docs)]

use std::error::Error;

use codec::{DecodeError, decode};
use png::{BitDepth, ColorType};

type Encoder<'a> = png::Encoder<'static, &'a mut Vec<u8>>;

const PALETTE: &[u8] = &[10, 20, 30, 40, 50, 60];

/// A PNG with these samples as the file holds them. Without any it ends where they should be.
fn png(
    [width, height]: [u32; 2],
    set_format: impl FnOnce(&mut Encoder<'_>),
    samples: Option<&[u8]>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    set_format(&mut encoder);
    let mut writer = encoder.write_header().unwrap();
    samples.into_iter().for_each(|samples| writer.write_image_data(samples).unwrap());
    drop(writer);
    bytes
}

fn rgb() -> Vec<u8> {
    png([3, 2], |encoder| encoder.set_color(ColorType::Rgb), Some(&(1..=18).collect::<Vec<_>>()))
}

/// Two pixels of a palette, whose first colour is transparent.
fn transparent(palette: &[u8]) -> Vec<u8> {
    let palette = palette.to_vec();
    let set_format = |encoder: &mut Encoder<'_>| {
        encoder.set_color(ColorType::Indexed);
        encoder.set_palette(palette);
        encoder.set_trns(&[0][..]);
    };
    png([2, 1], set_format, Some(&[0, 1]))
}

fn decoded(bytes: &[u8]) -> (Vec<usize>, Vec<u8>) {
    let tensor = decode(bytes, None).unwrap();
    (tensor.shape().to_vec(), tensor.to_vec().unwrap())
}

fn refused(bytes: &[u8]) -> DecodeError {
    decode(bytes, None).expect_err("it is no whole picture")
}

#[test]
fn a_tensor_has_channels_then_rows_then_columns() {
    let channels = [[1, 4, 7, 10, 13, 16], [2, 5, 8, 11, 14, 17], [3, 6, 9, 12, 15, 18]];
    assert_eq!(decoded(&rgb()), (vec![3, 2, 3], channels.concat()));
}

#[test]
fn channels_are_those_of_the_file_in_eight_bits() {
    use BitDepth::{Eight, One, Sixteen};
    use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
    for (color, depth, data, channels, elements) in [
        (Grayscale, Eight, &[1, 2][..], 1, &[1, 2][..]),
        (Grayscale, One, &[0b0100_0000], 1, &[0, 255]),
        (Grayscale, Sixteen, &[1, 99, 2, 99], 1, &[1, 2]),
        (GrayscaleAlpha, Eight, &[1, 2, 3, 4], 2, &[1, 3, 2, 4]),
        (Indexed, One, &[0b0100_0000], 3, &[10, 40, 20, 50, 30, 60]),
        (Rgb, Sixteen, &[1, 9, 2, 9, 3, 9, 4, 9, 5, 9, 6, 9], 3, &[1, 4, 2, 5, 3, 6]),
        (Rgba, Eight, &[1, 2, 3, 4, 5, 6, 7, 8], 4, &[1, 5, 2, 6, 3, 7, 4, 8]),
    ] {
        let set_format = |encoder: &mut Encoder<'_>| {
            encoder.set_color(color);
            encoder.set_depth(depth);
            encoder.set_palette(PALETTE);
        };
        let found = decoded(&png([2, 1], set_format, Some(data)));
        assert_eq!(found, (vec![channels, 1, 2], elements.to_vec()), "{color:?} {depth:?}");
    }
}

#[test]
fn a_colour_that_is_transparent_adds_a_channel() {
    assert_eq!(decoded(&transparent(PALETTE)), (vec![4, 1, 2], vec![10, 40, 20, 50, 30, 60, 0, 255]));
}

#[test]
fn a_palette_that_ends_within_a_colour_is_an_error() {
    for palette in [&[10, 20, 30, 40][..], &[10, 20, 30, 40, 50]] {
        let error = refused(&transparent(palette));
        assert!(matches!(error, DecodeError::Damaged(_)), "{error}");
    }
}

/// 5 x 3 grey pixels, each ten times its row and its column, in the seven passes of an interlaced file.
const INTERLACED: &[u8] = b"\x89PNG\r\n\x1a\n\
    \0\0\0\x0dIHDR\0\0\0\x05\0\0\0\x03\x08\0\0\0\x01\x09\x5a\xaa\xb2\
    \0\0\0\x1eIDAT\x78\xda\x63\x60\x60\x60\x61\x60\x62\x10\x11\x93\x60\x60\x64\x66\x10\x15\x67\xe0\xe2\xe6\xe1\xe5\
    \x03\0\x06\x38\0\xb5\xb6\x72\x48\x21\
    \0\0\0\0IEND\xae\x42\x60\x82";

#[test]
fn interlaced_pictures_are_put_together() {
    let rows = [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14], [20, 21, 22, 23, 24]];
    assert_eq!(decoded(INTERLACED), (vec![1, 3, 5], rows.concat()));
}

#[test]
fn a_picture_that_is_cut_off_anywhere_is_an_error_with_its_cause() {
    for bytes in [&rgb()[..], INTERLACED] {
        for len in 0..bytes.len() {
            let error = refused(&bytes[..len]);
            assert_eq!(matches!(error, DecodeError::NotPng { .. }), len < 8, "{len}: {error}");
            assert_eq!(error.source().is_some(), len >= 8, "{len}: {error}");
        }
    }
    let error = refused(&rgb()[..50]);
    assert_eq!(
        format!("{error:?}"),
        "the PNG picture is damaged or cut off\ncaused by: unexpected end of file"
    );
}

#[test]
fn a_bit_that_is_flipped_anywhere_is_an_error() {
    for bytes in [&rgb()[..], INTERLACED, &transparent(PALETTE)] {
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 1 << bit;
                let error = refused(&bytes);
                let is_not_png = matches!(error, DecodeError::NotPng { .. });
                assert_eq!(is_not_png, at < 8, "bit {bit} of byte {at}: {error}");
                // Behind the size of the picture.
                let is_damaged = matches!(error, DecodeError::Damaged(_));
                assert!(is_damaged || at < 24, "bit {bit} of byte {at}: {error}");
            }
        }
    }
}

#[test]
fn other_files_are_errors_with_what_was_expected_and_found() {
    for (bytes, found) in [
        (&b""[..], "no bytes at all"),
        (b"\x89PNG", "only the first 4 of these bytes"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01", r"`\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01`"),
        (
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0",
            r"`\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00`",
        ),
        (b"# codec\n\nThree crates", r"`# codec\n\nThree c`"),
    ] {
        let message = refused(bytes).to_string();
        assert_eq!(
            message,
            format!(r"expected a PNG picture, which begins with `\x89PNG\r\n\x1a\n`; found {found}")
        );
    }
}

#[test]
fn a_picture_that_claims_to_be_too_large_is_refused_by_its_header() {
    let header = |size| png(size, |encoder| encoder.set_color(ColorType::Rgba), None);
    for size in [[i32::MAX as u32; 2], [1 << 26, 2], [1 << 13, (1 << 13) + 1]] {
        let [width, height] = size;
        let expected = format!(
            "the PNG claims to be {width} x {height} pixels, and at most 67108864 pixels are decoded"
        );
        assert_eq!(refused(&header(size)).to_string(), expected);
    }
    for size in [[1 << 13; 2], [1 << 26, 1], [1, 1 << 26]] {
        assert!(matches!(refused(&header(size)), DecodeError::Damaged(_)), "{size:?}");
    }
}
