//! What the threads of a gateway did, as callgrind counts it.
//!
//! One run under callgrind gives all figures: instructions by object, calls by function, and system calls, also those
//! that are made without libc. Files of callgrind are described at <https://valgrind.org/docs/manual/cl-format.html>.

use std::{collections::HashMap, fs, path::PathBuf, process::Command};

/// Where libc returns memory that is new to the caller.
const ALLOCATIONS: [&str; 6] = [
    "aligned_alloc",
    "calloc",
    "malloc",
    "memalign",
    "posix_memalign",
    "realloc",
];

/// libc's clock. Natively it is no system call, but under valgrind, which hides the vDSO.
const CLOCK: &str = "clock_gettime";

/// What was counted of all threads but the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Instructions in the program itself.
    pub(super) instructions: u64,
    /// Instructions in libc and other shared libraries.
    pub(super) in_libraries: u64,
    /// Calls of the allocator that return memory.
    pub(super) allocations: u64,
    /// Calls of `memcpy` and `memmove`, of whichever variant for the processor.
    pub(super) copies: u64,
    /// System calls but for reading the clock.
    pub(super) system_calls: u64,
    /// Calls of `clock_gettime`.
    pub(super) clock_reads: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.in_libraries += other.in_libraries;
        self.allocations += other.allocations;
        self.copies += other.copies;
        self.system_calls += other.system_calls;
        self.clock_reads += other.clock_reads;
    }
}

/// Runs this program under callgrind, which makes it serve as many requests of a case. `None` without valgrind.
///
/// It runs on one processor: on several, it differs from run to run how many of the responses that an upstream sends at
/// a time a data core receives together, and so by 2 % what requests cost over HTTP/2.
pub(super) fn count(case: &str, requests: u64) -> Option<Counts> {
    Command::new("valgrind").arg("--version").output().ok()?;
    let (this, output) = (std::env::current_exe().ok()?, Output::new());
    let run = Command::new("taskset")
        .args(["--cpu-list", &processor(), "valgrind"])
        .args(["--tool=callgrind", "--separate-threads=yes"])
        .args(["--collect-systime=yes", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}/out", output.0.display()))
        .arg(&this)
        .args(["--bench", "--rounds", &requests.to_string(), case])
        .output()
        .expect("util-linux is installed");
    let log = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{case}: {log}");
    let program = this.file_name()?.to_str()?;
    let files = fs::read_dir(&output.0).expect("it was just made");
    let paths = files.map(|file| file.expect("it can be read").path());
    let mut counts = Counts::default();
    for path in paths.filter(|path| path.extension().is_none() && !path.ends_with("out-01")) {
        let text = fs::read_to_string(path).expect("callgrind wrote it");
        counts.add(Profile::new(program).read(&text));
    }
    Some(counts)
}

/// The number of the first processor on which this process may run.
fn processor() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = list.expect("the kernel says so").trim();
    let end = list.find(|c: char| !c.is_ascii_digit());
    list[..end.unwrap_or(list.len())].to_owned()
}

/// A directory for the output of callgrind, removed with this value.
struct Output(PathBuf);

impl Output {
    fn new() -> Self {
        let name = format!("fairgate-callgrind-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("the temporary directory can be written");
        Self(directory)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file of callgrind that is being read, line by line.
struct Profile<'a> {
    /// The end of the path of the object whose instructions are the program's own.
    program: &'a str,
    objects: Names<'a>,
    functions: Names<'a>,
    object: &'a str,
    function: &'a str,
    /// The object of the next call, if it is not that of the caller.
    called_object: Option<&'a str>,
    called: &'a str,
    /// The next line is what a call cost with everything that it called.
    is_inclusive: bool,
    counts: Counts,
}

impl<'a> Profile<'a> {
    fn new(program: &'a str) -> Self {
        Self {
            program,
            objects: Names::default(),
            functions: Names::default(),
            object: "",
            function: "",
            called_object: None,
            called: "",
            is_inclusive: false,
            counts: Counts::default(),
        }
    }

    fn read(mut self, text: &'a str) -> Counts {
        for line in text.lines() {
            match line.split_once('=') {
                Some(("ob", name)) => self.object = self.objects.resolve(name),
                Some(("fn", name)) => self.function = self.functions.resolve(name),
                Some(("cob", name)) => self.called_object = Some(self.objects.resolve(name)),
                Some(("cfn", name)) => self.called = self.functions.resolve(name),
                Some(("calls", calls)) => self.read_calls(calls),
                _ if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) => {
                    self.read_cost(line);
                }
                _ => {}
            }
        }
        self.counts
    }

    /// Counts calls from the program to libraries. What libc calls within itself differs between its versions.
    fn read_calls(&mut self, calls: &str) {
        self.is_inclusive = true;
        let callee = self.called_object.take();
        if !self.is_program(self.object) || callee.is_none_or(|callee| self.is_program(callee)) {
            return;
        }
        let count = calls.split(' ').next().and_then(|count| count.parse().ok());
        let count: u64 = count.expect("callgrind writes how often");
        // Some names have a version: `clock_gettime@@GLIBC_2.17`.
        let called = self.called.split('@').next().unwrap_or_default();
        if ALLOCATIONS.contains(&called) {
            self.counts.allocations += count;
        } else if called.contains("memcpy") || called.contains("memmove") {
            self.counts.copies += count;
        } else if called == CLOCK {
            self.counts.clock_reads += count;
        }
    }

    /// Counts what the present function did itself. The events are instructions and system calls, after a position; zeros at
    /// the end are not written.
    fn read_cost(&mut self, line: &str) {
        if std::mem::take(&mut self.is_inclusive) {
            return;
        }
        let mut events = line.split(' ').skip(1).map(|count| count.parse().ok());
        let mut next = || events.next().flatten().unwrap_or(0_u64);
        let (instructions, system_calls) = (next(), next());
        if self.is_program(self.object) {
            self.counts.instructions += instructions;
        } else {
            self.counts.in_libraries += instructions;
        }
        if !self.function.starts_with(CLOCK) {
            self.counts.system_calls += system_calls;
        }
    }

    fn is_program(&self, object: &str) -> bool {
        object.ends_with(self.program)
    }
}

/// The names of objects or functions. callgrind writes `(7) name` the first time, and `(7)` from then on.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, &'a str>);

impl<'a> Names<'a> {
    fn resolve(&mut self, written: &'a str) -> &'a str {
        match written.split_once(") ") {
            Some((number, name)) => {
                self.0.insert(number, name);
                name
            }
            None => self.0[written.trim_end_matches(')')],
        }
    }
}
