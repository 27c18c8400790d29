//! Follows real files in a directory of their own.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::*;

/// A directory that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("epp-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes beside the file and moves the whole into its place.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        self.write("new", text);
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Contents = watch::Receiver<Arc<[u8]>>;

async fn start(dir: &Scratch, name: &str) -> (Contents, Tasks) {
    let tasks = Tasks::default();
    let path = dir.path(name);
    let known = read(&path).await.unwrap();
    (follow(&path, known, &tasks), tasks)
}

/// Collects what is handed out until `last` is.
async fn until(contents: &mut Contents, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|s| s != last) {
        let change = tokio::time::timeout(Duration::from_secs(20), contents.changed()).await;
        change.unwrap_or_else(|_| panic!("waits for {last:?}, saw {seen:?}")).unwrap();
        seen.push(String::from_utf8(contents.borrow_and_update().to_vec()).unwrap());
    }
    seen
}

#[tokio::test]
async fn follows_replacements_and_writes_in_place() {
    let dir = Scratch::new();
    dir.write("f", "0");
    let (mut contents, _tasks) = start(&dir, "f").await;
    for i in 1..6 {
        let text = i.to_string();
        if i % 2 == 0 {
            dir.write("f", &text)
        } else {
            dir.replace("f", &text)
        }
        until(&mut contents, &text).await;
    }
}

#[tokio::test]
async fn follows_a_file_that_was_deleted_and_made_again() {
    let dir = Scratch::new();
    dir.write("f", "0");
    let (mut contents, _tasks) = start(&dir, "f").await;
    for text in ["1", "2"] {
        fs::remove_file(dir.path("f")).unwrap();
        dir.write("f", text);
        until(&mut contents, text).await;
    }
}

#[tokio::test]
async fn follows_a_file_that_was_moved_away_and_written_anew() {
    let dir = Scratch::new();
    dir.write("f", "0");
    let (mut contents, _tasks) = start(&dir, "f").await;
    fs::rename(dir.path("f"), dir.path("f.bak")).unwrap();
    dir.write("f", "1");
    until(&mut contents, "1").await;
}

#[tokio::test]
async fn follows_a_mounted_file_whose_directory_is_swapped() {
    let dir = Scratch::new();
    let mount = |version: u32| {
        let name = format!("..{version}");
        fs::create_dir(dir.path(&name)).unwrap();
        dir.write(&format!("{name}/f"), &version.to_string());
        symlink(&name, dir.path("..tmp")).unwrap();
        fs::rename(dir.path("..tmp"), dir.path("..data")).unwrap();
    };
    mount(0);
    symlink("..data/f", dir.path("f")).unwrap();
    let (mut contents, _tasks) = start(&dir, "f").await;
    for version in 1..4 {
        mount(version);
        fs::remove_dir_all(dir.path(&format!("..{}", version - 1))).unwrap();
        until(&mut contents, &version.to_string()).await;
    }
}

#[tokio::test]
async fn follows_a_file_whose_directory_was_made_again() {
    let dir = Scratch::new();
    fs::create_dir(dir.path("d")).unwrap();
    dir.write("d/f", "0");
    let (mut contents, _tasks) = start(&dir, "d/f").await;
    for text in ["1", "2"] {
        fs::remove_dir_all(dir.path("d")).unwrap();
        fs::create_dir(dir.path("d")).unwrap();
        dir.write("d/f", text);
        until(&mut contents, text).await;
    }
}

#[tokio::test]
async fn a_change_from_before_it_began_to_follow_is_seen() {
    let dir = Scratch::new();
    dir.write("f", "1");
    let tasks = Tasks::default();
    let mut contents = follow(&dir.path("f"), Arc::from(*b"0"), &tasks);
    until(&mut contents, "1").await;
}

#[tokio::test]
async fn fifty_rewrites_end_in_the_last() {
    let dir = Scratch::new();
    dir.write("f", "start");
    let (mut contents, _tasks) = start(&dir, "f").await;
    for i in 0..50 {
        if i % 2 == 0 { dir.write("f", &i.to_string()) } else { dir.replace("f", &i.to_string()) }
    }
    until(&mut contents, "49").await;
}

#[tokio::test]
async fn a_write_in_pieces_is_seen_whole() {
    let dir = Scratch::new();
    dir.write("f", "before");
    let (mut contents, _tasks) = start(&dir, "f").await;
    let mut file = File::create(dir.path("f")).unwrap();
    for piece in ["on", "e ", "two"] {
        file.write_all(piece.as_bytes()).unwrap();
        tokio::task::yield_now().await;
    }
    drop(file);
    assert_eq!(until(&mut contents, "one two").await, ["one two"]);
}

#[tokio::test]
async fn a_file_rewritten_without_end_is_taken_up() {
    let dir = Scratch::new();
    dir.write("f", "start");
    let (mut contents, _tasks) = start(&dir, "f").await;
    let writing = tokio::spawn(async move {
        for i in 0.. {
            dir.replace("f", &i.to_string());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    tokio::time::timeout(Duration::from_secs(20), contents.changed()).await.unwrap().unwrap();
    writing.abort();
}

#[tokio::test]
async fn refuses_what_is_no_file_and_what_is_too_large() {
    let dir = Scratch::new();
    fs::create_dir(dir.path("d")).unwrap();
    assert!(read(&dir.path("d")).await.is_err());
    assert_eq!(read(&dir.path("absent")).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    File::create(dir.path("large")).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert_eq!(read(&dir.path("large")).await.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

#[tokio::test]
async fn ends_when_nobody_listens_or_the_tasks_are_stopped() {
    let dir = Scratch::new();
    dir.write("f", "0");
    let (mut contents, tasks) = start(&dir, "f").await;
    tasks.stop();
    assert!(contents.changed().await.is_err());
}
