package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// ReleaseFile contains the confirmed release of a machine. It is written when all daemons of the release have been well
// for a while.
const ReleaseFile = "/var/lib/clusterctl/release.json"

// SavedReleaseDir is the directory in which a machine keeps the files that an update replaces, until the new release is
// confirmed.
const SavedReleaseDir = "/var/lib/clusterctl/former"

// Release is a build of this project.
type Release struct {
	Version    string `json:"version"`    // version of clusterctl
	Kubernetes string `json:"kubernetes"` // version of the Kubernetes API
	Build      string `json:"build"`      // prefix of clusterctl's digest, since two builds may have the same version
}

// String returns the version and the build.
func (r Release) String() string { return fmt.Sprintf("%s (build %s)", r.Version, r.Build) }

// SavedRelease describes a machine before an update that is not confirmed yet.
type SavedRelease struct {
	From  Release     `json:"from"` // zero if it was not recorded
	To    Release     `json:"to"`
	Time  time.Time   `json:"taken"` // by the machine's clock
	Files []SavedFile `json:"files"`
}

// SavedFile is a file before an update.
type SavedFile struct {
	Path   string `json:"path"`
	Target string `json:"target,omitempty"` // target of a link
	// CopyName is the name of the copy in SavedReleaseDir. If CopyName and Target are empty, the file did not exist.
	CopyName string      `json:"kept,omitempty"`
	Mode     fs.FileMode `json:"mode,omitempty"`
	UID      int         `json:"uid,omitempty"`
	GID      int         `json:"gid,omitempty"`
}

// SavedListPath is the path of the list of former files.
const SavedListPath = SavedReleaseDir + "/list.json"

// ReadSavedRelease returns what was saved before an update, or nil if no update is in progress.
func ReadSavedRelease(files Files) (*SavedRelease, error) {
	var f SavedRelease
	if exists, err := readJSON(files, SavedListPath, &f); !exists {
		return nil, err
	}
	return &f, nil
}

// ReadRelease returns the confirmed release of a machine, or nil if none is recorded.
func ReadRelease(files Files) (*Release, error) {
	var r Release
	if exists, err := readJSON(files, ReleaseFile, &r); !exists {
		return nil, err
	}
	return &r, nil
}

// Releases returns the confirmed release and the release that is being tried.
func Releases(files Files) (held, tried *Release) {
	held, _ = ReadRelease(files) // an unreadable file counts as unknown and is written again
	if former, _ := ReadSavedRelease(files); former != nil {
		tried = &former.To
	}
	return held, tried
}

func readJSON(files Files, path string, into any) (exists bool, err error) {
	text, err := files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}
