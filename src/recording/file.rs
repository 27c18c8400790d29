//! A file that is appended to until it is full, and then takes the place of the one before.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// The two files of a recording: the one that is written, and the one before.
#[derive(Debug)]
pub struct Rotating {
    path: PathBuf,
    most_bytes: u64,
    /// `None`: it could not be opened, which is tried again.
    file: Option<File>,
    bytes: u64,
}

/// The name of the file before this one.
pub fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

impl Rotating {
    /// Opens the file to append to it, and makes it if it is not there.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn open(path: PathBuf, most_bytes: u64) -> std::io::Result<Self> {
        let mut rotating = Self { path, most_bytes, file: None, bytes: 0 };
        rotating.opened()?;
        Ok(rotating)
    }

    /// Whether so many bytes can be added.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.bytes + bytes as u64 <= self.most_bytes
    }

    /// Whether nothing is in the file.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends what is in `text`, which is empty after that, whether or not it could be written.
    ///
    /// # Errors
    /// If it could not. Part of it may be in the file; what is written next begins a line.
    pub fn write(&mut self, text: &mut Vec<u8>) -> std::io::Result<()> {
        let written = match text.is_empty() {
            true => Ok(()),
            false => self.opened().and_then(|file| file.write_all(text)),
        };
        match &written {
            Ok(()) => self.bytes += text.len() as u64,
            Err(_) => self.file = None,
        }
        text.clear();
        written
    }

    /// Begins an empty file; the one so far takes the place of the one before.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn rotate(&mut self) -> std::io::Result<()> {
        self.file = None;
        std::fs::rename(&self.path, before(&self.path))?;
        self.opened().map(drop)
    }

    fn opened(&mut self) -> std::io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.path)?;
                self.bytes = file.metadata()?.len();
                self.bytes += end_line(&mut file)?;
                file
            }
        };
        Ok(self.file.insert(file))
    }
}

/// Ends the last line if someone was cut short in it; says how many bytes that took.
fn end_line(file: &mut File) -> std::io::Result<u64> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last == [b'\n'] {
        return Ok(0);
    }
    file.write_all(b"\n")?;
    Ok(1)
}
