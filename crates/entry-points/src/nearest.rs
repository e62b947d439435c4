//! The name that the user probably meant.

/// The one of `names` with the smallest edit distance to `asked`: at most one edit for three letters, and at
/// most two.
///
/// An edit inserts, deletes or replaces a letter, or swaps two neighbours. If one of the names has at most
/// three letters, one name has to begin with the other: `mp3` is not a hint for `mp4`.
#[must_use]
pub fn nearest<'a>(asked: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let asked = asked.to_ascii_lowercase();
    if asked.len() > 64 {
        return None;
    }
    let allowed = (asked.len() / 3).clamp(1, 2);
    let long_enough = |name: &&'a str| {
        asked.len().min(name.len()) > 3
            || name.starts_with(&asked)
            || asked.starts_with(*name)
            || same_letters(&asked, name)
    };
    let candidates = names.filter(long_enough);
    let by_distance = candidates.map(|name| (distance(asked.as_bytes(), name.as_bytes()), name));
    by_distance
        .filter(|&(distance, name)| distance <= allowed && distance < name.len())
        .min()
        .map(|(_, name)| name)
}

/// Whether one is the other in another order.
fn same_letters(one: &str, other: &str) -> bool {
    let sorted = |name: &str| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.sort_unstable();
        bytes
    };
    one.len() == other.len() && sorted(one) == sorted(other)
}

/// The optimal string alignment distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_a_hint_and_another_word_has_none() {
        let names = ["mp3", "opus", "vorbis"];
        for (asked, expected) in [
            ("vorbos", Some("vorbis")),
            ("vobris", Some("vorbis")),
            ("vorbis2", Some("vorbis")),
            ("Vorbis", Some("vorbis")),
            ("opsu", Some("opus")),
            ("mp", Some("mp3")),
            ("mp33", Some("mp3")),
            ("m3p", Some("mp3")),
            ("p3m", None),
            ("mp4", None),
            ("mpg", None),
            ("matroska", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(asked, names.into_iter()), expected, "{asked}");
        }
        assert_eq!(nearest(&"x".repeat(10_000), names.into_iter()), None);
    }
}
