//! Random numbers: Philox 4x32 with ten rounds.

use device_kernels::{DType, Distribution, Layout};
use device_registry::backend::BackendError;

use crate::arrays::write_blocks;
use crate::element::{Compute, Element, with_element};

/// The generator of one seed.
#[derive(Clone, Copy)]
struct Philox {
    key: [u32; 2],
}

impl Philox {
    fn new(seed: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32] }
    }

    /// The four numbers of a counter.
    fn at(self, counter: u64) -> [u32; 4] {
        let mut words = [counter as u32, (counter >> 32) as u32, 0, 0];
        let mut key = self.key;
        for _ in 0..10 {
            let [low, high] = [u64::from(words[0]) * 0xD251_1F53, u64::from(words[2]) * 0xCD9E_8D57];
            words = [
                (high >> 32) as u32 ^ words[1] ^ key[0],
                high as u32,
                (low >> 32) as u32 ^ words[3] ^ key[1],
                low as u32,
            ];
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        words
    }

    /// 32 bits for the element with a number. Four elements share a counter, except for 64-bit types.
    fn word(self, number: u64, wide: bool) -> u32 {
        if wide { self.at(number)[0] } else { self.at(number / 4)[(number % 4) as usize] }
    }

    /// Two words that no other element of this kind has.
    fn pair(self, number: u64) -> [u32; 2] {
        let [low, high, ..] = self.at(number);
        [low, high]
    }

    fn bits(self, number: u64) -> u64 {
        let [low, high] = self.pair(number);
        u64::from(low) | u64::from(high) << 32
    }
}

pub(crate) fn random(
    distribution: Distribution,
    seed: u64,
    offset: u64,
    (out, dtype, layout): (&mut [u8], DType, &Layout),
) -> Result<(), BackendError> {
    let philox = Philox::new(seed);
    let wide = dtype.size() == 8;
    with_element!(dtype, E => {
        type C = <E as Element>::Compute;
        let draw: Box<dyn Fn(u64) -> C + Sync> = match distribution {
            Distribution::Uniform { low, high } if wide => Box::new(move |number| {
                let unit = (philox.bits(number) >> 11) as f64 * 2_f64.powi(-53);
                C::from_f64(low + unit * (high - low))
            }),
            Distribution::Uniform { low, high } => {
                let (low, range) = (low as f32, (high - low) as f32);
                Box::new(move |number| {
                    let unit = (philox.word(number, wide) >> 8) as f32 * 2_f32.powi(-24);
                    C::from_f32(low + unit * range)
                })
            }
            Distribution::Normal { mean, deviation } => Box::new(move |number| {
                let [first, second] = philox.pair(number);
                let radius = (-2.0 * (f64::from((first >> 8) + 1) * 2_f64.powi(-24)).ln()).sqrt();
                let angle = f64::from(second >> 8) * 2_f64.powi(-24) * std::f64::consts::TAU;
                C::from_f64(mean + deviation * radius * angle.cos())
            }),
            Distribution::Bernoulli { probability } => Box::new(move |number| {
                C::from_bool(f64::from(philox.word(number, wide)) * 2_f64.powi(-32) < probability)
            }),
            Distribution::Integers { low, high } => {
                let range = high.wrapping_sub(low) as u64;
                Box::new(move |number| {
                    let above = match u32::try_from(range) {
                        Ok(range) => (u64::from(philox.word(number, wide)) * u64::from(range)) >> 32,
                        Err(_) => philox.bits(number) % range,
                    };
                    C::from_i64(low.wrapping_add(above as i64))
                })
            }
            other => return Err(crate::unsupported(format_args!("{other:?}"))),
        };
        let draw = &*draw;
        write_blocks::<E, _>(out, layout, || move |start, out: &mut [C]| {
            for (number, out) in out.iter_mut().enumerate() {
                *out = draw(offset.wrapping_add((start + number) as u64));
            }
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::Philox;

    /// From Random123's known answers, `philox4x32 10`: a counter and a key of zeros.
    #[test]
    fn the_generator_is_philox() {
        assert_eq!(Philox::new(0).at(0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }
}
