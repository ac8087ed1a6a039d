package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

// File is a file in the single layer of an image.
type File struct {
	Path    string // absolute
	Mode    fs.FileMode
	Content []byte
	Link    string // target of a symbolic link, which has no content
}

// Write returns an archive, in OCI layout, of an image with one layer. The same files give the same bytes.
func Write(arch string, entrypoint []string, files ...File) ([]byte, error) {
	layer, err := writeTar(files)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux",
		"config": map[string]any{
			"Entrypoint": entrypoint,
			"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(layer)}},
	})
	if err != nil {
		return nil, fmt.Errorf("write the image's configuration: %w", err)
	}
	describe := func(mediaType string, content []byte) Descriptor {
		return Descriptor{MediaType: mediaType, Digest: digestOf(content), Size: int64(len(content))}
	}
	m, err := json.Marshal(
		manifest{
			SchemaVersion: 2,
			MediaType:     typeManifest,
			Config:        describe(typeConfig, config),
			Layers:        []Descriptor{describe(typeLayer, layer)},
		},
	)
	if err != nil {
		return nil, fmt.Errorf("write the image's manifest: %w", err)
	}
	i, err := json.Marshal(
		index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{describe(typeManifest, m)}},
	)
	if err != nil {
		return nil, fmt.Errorf("write the image's index: %w", err)
	}
	out := []File{
		{Path: "oci-layout", Mode: 0o644, Content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{Path: "index.json", Mode: 0o644, Content: i},
	}
	for _, content := range [][]byte{layer, config, m} {
		out = append(out,
			File{Path: "blobs/" + strings.Replace(digestOf(content), ":", "/", 1), Mode: 0o644, Content: content})
	}
	return writeTar(out)
}

func writeTar(files []File) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{
			Name:     strings.TrimPrefix(f.Path, "/"),
			Mode:     int64(f.Mode.Perm()),
			Size:     int64(len(f.Content)),
			Typeflag: tar.TypeReg,
			Format:   tar.FormatUSTAR,
		}
		if f.Link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		if err := archive.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.Path, err)
		}
		if _, err := archive.Write(f.Content); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
