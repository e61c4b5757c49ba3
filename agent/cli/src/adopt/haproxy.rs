//! `haproxy -c` on the file before and after.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

/// Where it is on the distributions that install it outside of a user's PATH.
const DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/opt/haproxy/sbin"];

/// An HAProxy that checks configurations.
pub struct Haproxy {
    path: PathBuf,
}

struct Verdict {
    accepted: bool,
    warnings: usize,
    text: String,
}

impl Haproxy {
    /// The named one, or one that is installed.
    pub fn find(named: Option<PathBuf>) -> anyhow::Result<Option<Self>> {
        if let Some(path) = named {
            if !path.is_file() {
                bail!("--haproxy: {} is not a file", path.display());
            }
            return Ok(Some(Haproxy { path }));
        }
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&paths)
            .chain(DIRECTORIES.map(PathBuf::from))
            .map(|directory| directory.join("haproxy"))
            .find(|path| path.is_file());
        Ok(found.map(|path| Haproxy { path }))
    }

    /// What to tell; an error where HAProxy refuses one of them.
    pub fn check(&self, file: &Path, before: &[u8], after: &[u8]) -> anyhow::Result<String> {
        let first = self.verdict(file, before)?;
        if !first.accepted {
            bail!(
                "{} refuses {} as it is (--no-check goes on without it):\n{}",
                self.path.display(),
                file.display(),
                first.text
            );
        }
        let second = self.verdict(file, after)?;
        if !second.accepted {
            bail!(
                "{} refuses what would be written, so nothing is:\n{}",
                self.path.display(),
                second.text
            );
        }
        let mut told = format!("Checked: {} -c takes it.\n", self.path.display());
        if second.warnings > first.warnings {
            told.push_str(&format!(
                "It warns, which it did not before:\n{}",
                second.text
            ));
        }
        Ok(told)
    }

    fn verdict(&self, file: &Path, bytes: &[u8]) -> anyhow::Result<Verdict> {
        let mut copy = tempfile::NamedTempFile::new().context("a temporary file for haproxy -c")?;
        copy.write_all(bytes)
            .and_then(|()| copy.flush())
            .context("a temporary file for haproxy -c")?;
        let output = Command::new(&self.path)
            .arg("-c")
            .arg("-f")
            .arg(copy.path())
            .output()
            .with_context(|| format!("{} -c", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stderr).replace(
            &copy.path().display().to_string(),
            &file.display().to_string(),
        );
        Ok(Verdict {
            accepted: output.status.success(),
            warnings: text.matches("[WARNING]").count(),
            text,
        })
    }
}
