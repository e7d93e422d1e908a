//! The processors of the host, at one moment.

/// Time of a processor, in clock ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Its number.
    pub(crate) number: u32,
    /// In programs.
    pub(crate) user: u64,
    /// In the kernel.
    pub(crate) system: u64,
    /// In nothing.
    pub(crate) idle: u64,
    /// Taken away by the machine under this one.
    pub(crate) stolen: u64,
}

/// Time of each processor since the host was started.
pub(crate) fn look() -> Vec<Processor> {
    parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The lines `cpuN user nice system idle iowait irq softirq steal …` of `/proc/stat` (proc(5)).
fn parse(stat: &str) -> Vec<Processor> {
    let of = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let number = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let tick = |i: usize| ticks.get(i).copied().unwrap_or(0);
        Some(Processor {
            number,
            user: tick(0) + tick(1),
            system: tick(2) + tick(5) + tick(6),
            idle: tick(3) + tick(4),
            stolen: tick(7),
        })
    };
    stat.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_lines_of_processors_and_no_others() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu12 1 0 0 1\nintr 5\n";
        let first = Processor { number: 0, user: 3, system: 16, idle: 9, stolen: 8 };
        let last = Processor { number: 12, user: 1, system: 0, idle: 1, stolen: 0 };
        assert_eq!(parse(stat), [first, last]);
    }
}
