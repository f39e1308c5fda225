//! Suggestions for misspelled names: the nearest name by edit distance.

/// The candidate nearest to `found` by case-insensitive Damerau-Levenshtein distance, if its
/// distance is at most a third of the length of `found` (and at least one is allowed); otherwise
/// `None`.
pub fn closest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance is quadratic in the length, and longer names are not typing errors.
    const MAX_LENGTH: usize = 64;
    let lower = |s: &str| {
        s.chars().take(MAX_LENGTH + 1).flat_map(char::to_lowercase).collect::<Vec<char>>()
    };
    let found = lower(found);
    if found.len() > MAX_LENGTH {
        return None;
    }
    let near = |name: &'a str| {
        let distance = distance(&found, &lower(name));
        (distance <= (found.len() / 3).max(1) && distance < found.len().max(1))
            .then_some((distance, name))
    };
    candidates.into_iter().filter_map(near).min().map(|(_, name)| name)
}

/// The Damerau-Levenshtein distance, restricted to transpositions of adjacent characters. The cost
/// is the product of the lengths.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let substituted = row[j] + usize::from(x != y);
            let mut best = substituted.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}
