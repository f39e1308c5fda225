//! "Did you mean": the nearest of some names.

/// The candidate nearest to `found` by edit distance (a swap of neighbours counts as one, a change
/// of case as nothing), if it is near enough to be a typing error: within a third of its length,
/// and at least one.
pub fn closest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names longer than this are not typing errors, and the distance is quadratic.
    const LONGEST: usize = 64;
    let lower =
        |s: &str| s.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect::<Vec<char>>();
    let found = lower(found);
    if found.len() > LONGEST {
        return None;
    }
    let near = |name: &'a str| {
        let distance = distance(&found, &lower(name));
        (distance <= (found.len() / 3).max(1) && distance < found.len().max(1))
            .then_some((distance, name))
    };
    candidates.into_iter().filter_map(near).min().map(|(_, name)| name)
}

/// The Damerau-Levenshtein distance, restricted to adjacent swaps.
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
