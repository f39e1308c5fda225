//! Kernels of a profile, put together by their operators, lines or scopes.

use super::table::{Place, Row, Table, lines_label};
use super::{KernelProfile, Profile};
use maquette_ops::Work;
use std::fmt;
use std::time::Duration;

/// The kernels of a profile in groups, the slowest first. Displays as a table.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// The groups.
    pub groups: Vec<ProfileGroup>,
    profile: Profile,
}

/// Kernels with the same operators, of the same lines or of the same scope.
#[derive(Clone, Debug)]
pub struct ProfileGroup {
    /// What they have in common.
    pub label: String,
    /// The number of kernels.
    pub kernels: usize,
    /// The sum of their median times.
    pub time: Duration,
    /// What one run of them all has to do. `None` if that of a kernel is not known.
    pub work: Option<Work>,
    /// The least time that the peaks of the machine permit, if it is known.
    pub bound: Option<Duration>,
}

impl Profile {
    /// The kernels by their operators. The time of a kernel with several operators is not divided:
    /// it belongs to all of them together.
    pub fn by_operator(&self) -> Grouped {
        self.grouped(KernelProfile::label_of_group)
    }

    /// The kernels by the lines of their operators. The time of a kernel with several lines is not
    /// divided.
    pub fn by_line(&self) -> Grouped {
        self.grouped(|kernel| match &lines_label(&kernel.lines(), usize::MAX)[..] {
            "" => "(no line)".to_owned(),
            lines => lines.to_owned(),
        })
    }

    /// The kernels by their scopes. A kernel whose operators are in several has the scope that
    /// these have in common.
    pub fn by_scope(&self) -> Grouped {
        self.grouped(|kernel| kernel.scope().unwrap_or("(no scope)").to_owned())
    }

    fn grouped(&self, label: impl Fn(&KernelProfile) -> String) -> Grouped {
        let mut groups: Vec<ProfileGroup> = Vec::new();
        for kernel in self.kernels.iter().filter(|kernel| kernel.timing.count > 0) {
            let label = label(kernel);
            let group = match groups.iter_mut().position(|group| group.label == label) {
                Some(at) => &mut groups[at],
                None => {
                    let (work, bound) = (Some(Work::default()), Some(Duration::ZERO));
                    let time = Duration::ZERO;
                    groups.push(ProfileGroup { label, kernels: 0, time, work, bound });
                    let last = groups.len() - 1;
                    &mut groups[last]
                }
            };
            group.kernels += 1;
            group.time += kernel.timing.median;
            group.work = group.work.zip(kernel.work).map(|(all, work)| all.with(&work));
            let bound = self.peaks.as_ref().and_then(|peaks| kernel.bound(peaks));
            group.bound = group.bound.zip(bound).map(|(all, bound)| all + bound.time);
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.time));
        Grouped { groups, profile: self.clone() }
    }
}

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |group: &ProfileGroup| Row {
            label: match group.kernels {
                1 => group.label.clone(),
                n => format!("{} ×{n}", group.label),
            },
            place: Place::default(),
            time: group.time,
            work: group.work,
            bound: group.bound,
            limit: None,
        };
        Table::new(&self.profile, self.groups.iter().map(row).collect()).fmt(f)
    }
}
