//! What the kernel says of a process that is measured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

/// A process that runs on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    /// The most that has been resident since the process began.
    pub peak: u64,
}

impl Process {
    /// How long the threads that it has now have been on a CPU, to the nanosecond. Threads that have ended are not in it.
    ///
    /// # Errors
    /// If there is no such process, or the system does not tell.
    pub fn on_cpu(self) -> anyhow::Result<Duration> {
        let tasks = std::fs::read_dir(self.file("task"));
        let tasks = tasks.with_context(|| format!("expected a process of the id {}", self.0))?;
        let nanos = tasks.flatten().filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Ok(Duration::from_nanos(nanos.sum()))
    }

    /// What memory it has.
    ///
    /// # Errors
    /// If there is no such process, or the system does not tell.
    pub fn memory(self) -> anyhow::Result<Memory> {
        let text = std::fs::read_to_string(self.file("status"));
        memory_of(&text.with_context(|| format!("expected a process of the id {}", self.0))?)
    }

    fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }
}

fn memory_of(status: &str) -> anyhow::Result<Memory> {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kib.map(|kib| kib * 1024).with_context(|| format!("expected a line {name} of so many kB"))
    };
    Ok(Memory { resident: of("VmRSS")?, peak: of("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        let memory = memory_of("Name:\tepp\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n").unwrap();
        assert_eq!(memory, Memory { resident: 1 << 20, peak: 2 << 20 });
        assert!(memory_of("Name:\tkthreadd\n").unwrap_err().to_string().contains("VmRSS"));
    }

    #[test]
    fn this_process_has_memory_and_no_process_has_none() {
        let this = Process(std::process::id());
        assert!(this.memory().unwrap().resident > 0 && this.on_cpu().is_ok());
        assert!(Process(u32::MAX).on_cpu().unwrap_err().to_string().contains("4294967295"));
    }
}
