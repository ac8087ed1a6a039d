package load

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// maxModule is the maximum size in bytes of a fetched repository.
const maxModule = 256 << 20

// moduleLock records the content of a repository that a configuration uses.
type moduleLock struct {
	commit string
	hash   string // digest of all files, computed by hashFolder
}

type lockedModule struct {
	Source string `hcl:"source,label"`
	Commit string `hcl:"commit"`
	Hash   string `hcl:"hash"`
}

// commitPattern matches the ID of a Git commit.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// readLocks reads a lock file. A missing file is empty.
func readLocks(path string) (map[string]moduleLock, error) {
	locks := map[string]moduleLock{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return locks, nil
	}
	if err != nil {
		return nil, err
	}
	f, diags := hclparse.NewParser().ParseHCL(text, path)
	var content struct {
		Modules []lockedModule `hcl:"module,block"`
	}
	if !diags.HasErrors() {
		diags = append(diags, gohcl.DecodeBody(f.Body, &hcl.EvalContext{}, &content)...)
	}
	if diags.HasErrors() {
		return nil, fmt.Errorf("read %s: %w", path, diags)
	}
	for _, m := range content.Modules {
		if !commitPattern.MatchString(m.Commit) { // git could mistake other texts for options
			return nil, fmt.Errorf("read %s: %q of module %q is not a commit", path, m.Commit, m.Source)
		}
		locks[m.Source] = moduleLock{commit: m.Commit, hash: m.Hash}
	}
	return locks, nil
}

// writeLocks writes a lock file.
func writeLocks(path string, locks map[string]moduleLock) error {
	f := hclwrite.NewEmptyFile()
	f.Body().
		AppendUnstructuredTokens(hclwrite.Tokens{{Type: 0, Bytes: []byte("# Made by clusterctl get. Keep it with the " +
			"configuration: it says which content its modules have.\n")}})
	for _, source := range slices.Sorted(maps.Keys(locks)) {
		f.Body().AppendNewline()
		body := f.Body().AppendNewBlock("module", []string{source}).Body()
		body.SetAttributeValue("commit", cty.StringVal(locks[source].commit))
		body.SetAttributeValue("hash", cty.StringVal(locks[source].hash))
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, f.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(temporary, path)
}

// hashFolder returns a digest of the names and contents of all files in a directory.
func hashFolder(dir string) (string, error) {
	var lines []string
	left := int64(maxModule)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		h := sha256.New()
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "link %s", to)
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a folder", path)
		default:
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			n, err := io.Copy(h, io.LimitReader(f, left+1))
			_ = f.Close()
			if err != nil {
				return err
			}
			if left -= n; left < 0 {
				return fmt.Errorf("%s has more than %d MiB", dir, maxModule>>20)
			}
		}
		lines = append(lines, fmt.Sprintf("%x  %q\n", h.Sum(nil), filepath.ToSlash(name)))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("digest a module: %w", err)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return "sha256:" + base64.StdEncoding.EncodeToString(sum[:]), nil
}
