package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// ReleaseFile says which release has held on a machine: it is written when all daemons of it have been well for a
// while.
const ReleaseFile = "/var/lib/clusterctl/release.json"

// FormerRelease is where a machine keeps what an update changes, until the new release has held.
const FormerRelease = "/var/lib/clusterctl/former"

// Release is a build of this project.
type Release struct {
	Version    string `json:"version"`    // of clusterctl
	Kubernetes string `json:"kubernetes"` // whose API it speaks
	Build      string `json:"build"`      // how the digest of clusterctl begins: two builds may say the same version
}

// String names it with its build.
func (r Release) String() string { return fmt.Sprintf("%s (build %s)", r.Version, r.Build) }

// Former is what there was before an update that has not held yet.
type Former struct {
	From  Release      `json:"from"` // zero when nobody wrote it down
	To    Release      `json:"to"`
	Taken time.Time    `json:"taken"` // by the machine's clock
	Files []FormerFile `json:"files"`
}

// FormerFile is a file as it was.
type FormerFile struct {
	Path   string `json:"path"`
	Target string `json:"target,omitempty"` // of a link
	// name of the copy beside the list; without one, and no target, there was nothing
	Kept string      `json:"kept,omitempty"`
	Mode fs.FileMode `json:"mode,omitempty"`
	UID  int         `json:"uid,omitempty"`
	GID  int         `json:"gid,omitempty"`
}

// FormerList is where the list of it lies.
const FormerList = FormerRelease + "/list.json"

// ReadFormer returns what is kept of before an update, nil when no update is under way.
func ReadFormer(files Files) (*Former, error) {
	var f Former
	if there, err := readJSON(files, FormerList, &f); !there {
		return nil, err
	}
	return &f, nil
}

// ReadRelease returns the release that has held on a machine, nil when none has written itself down.
func ReadRelease(files Files) (*Release, error) {
	var r Release
	if there, err := readJSON(files, ReleaseFile, &r); !there {
		return nil, err
	}
	return &r, nil
}

// Releases returns the release that has held, and the one that is being tried.
func Releases(files Files) (held, tried *Release) {
	held, _ = ReadRelease(files) // what cannot be read is not known, and is written anew
	if former, _ := ReadFormer(files); former != nil {
		tried = &former.To
	}
	return held, tried
}

func readJSON(files Files, path string, into any) (there bool, err error) {
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
