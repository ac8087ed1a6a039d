// Package data reads input from outside the configuration: files, program output, Terraform outputs and Ansible
// inventories. The size of all input is limited. Package load uses the values. Objects of the cluster are read
// elsewhere.
package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// MaxBytes is the maximum size of a file.
const MaxBytes = 16 << 20

// ReadFile reads a file of at most MaxBytes.
func ReadFile(path string) ([]byte, error) { return ReadLimited(path, MaxBytes) }

// ReadLimited reads a file of at most the given number of bytes. It refuses pipes and devices, which may never end.
func ReadLimited(path string, maximum int64) ([]byte, error) {
	if err := CheckRegular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maximum+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(text)) > maximum {
		return nil, fmt.Errorf("read %s: it has more than %d MiB", path, maximum>>20)
	}
	return text, nil
}

// CheckRegular returns an error if a path is not a regular file.
func CheckRegular(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		var wrapped *fs.PathError
		if errors.As(err, &wrapped) {
			wrapped.Op = "open" // report the intended operation
		}
		return err
	case info.IsDir():
		return fmt.Errorf("read %s: is a directory", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("read %s: it is a pipe or a device, and not a file", path)
	}
	return nil
}

// JSON returns the value of a JSON text.
func JSON(text []byte) (cty.Value, error) {
	ty, err := ctyjson.ImpliedType(text)
	if err != nil {
		return cty.DynamicVal, err
	}
	return ctyjson.Unmarshal(text, ty)
}

// Value returns the value of a decoded JSON value.
func Value(plain any) (cty.Value, error) {
	text, err := json.Marshal(plain)
	if err != nil {
		return cty.DynamicVal, err
	}
	return JSON(text)
}

// WithoutBOM returns a text without the UTF-8 byte order mark that some editors write at the beginning of files.
func WithoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }
