// Package webimage packs the test workload (tests/programs/web) and a shell into an OCI archive, so that no registry is
// needed.
package webimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Reference is the name of the image inside its archive.
const Reference = "clusterctl.test/web:1"

// applets are the busybox commands in the image.
var applets = []string{
	"sh",
	"ls",
	"cat",
	"echo",
	"env",
	"hostname",
	"id",
	"nslookup",
	"ping",
	"ps",
	"sleep",
	"wget",
	"nc",
	"tar",
	"true",
	"false",
	"touch",
	"mkdir",
	"head",
	"dd",
	"mount",
	"df",
	"date",
	"kill",
	"stat",
	"grep",
	"seq",
	"vi",
	"rm",
}

// Write packs the image into an archive at path. The workload's program is test-web of the bundle, and further programs
// keep their names. The shell is a static busybox at /bin/busybox.
func Write(bundle, path string, more ...string) error {
	programs := map[string]string{"bin/web": filepath.Join(bundle, "test-web"), "bin/busybox": "/bin/busybox"}
	for _, name := range more {
		programs["bin/"+name] = filepath.Join(bundle, name)
	}
	layer, err := imageFiles(programs)
	if err != nil {
		return err
	}
	l, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil },
	)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config = v1.Config{Entrypoint: []string{"/bin/web"}, Env: []string{"PATH=/bin"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tag, err := name.NewTag(Reference)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return tarball.WriteToFile(path, tag, image)
}

func imageFiles(programs map[string]string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"bin/", "etc/", "tmp/", "root/"} {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		source := programs[name]
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, fmt.Errorf("pack the test image: %w", err)
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	passwd := "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
	if err := w.WriteHeader(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(passwd))}); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w, passwd); err != nil {
		return nil, err
	}
	for _, applet := range applets {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox",
			Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
