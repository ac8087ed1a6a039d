// Package image reads and writes image archives: the OCI layout and the format of docker save. It does no I/O of its
// own. Package host gives images to the container runtime.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"
)

// Media types of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// Descriptor refers to a blob.
type Descriptor struct {
	MediaType string    `json:"mediaType,omitempty"`
	Digest    string    `json:"digest"`
	Size      int64     `json:"size"`
	Platform  *Platform `json:"platform,omitempty"`
}

// Platform is the platform that an image runs on.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// Blob is a piece of an image. Its labels keep containerd from collecting the blobs that it refers to.
type Blob struct {
	Digest  string // sha256:…
	Content []byte
	Labels  map[string]string
}

// Image is the content of an archive. Blobs come before the blobs that refer to them.
type Image struct {
	Target Descriptor
	Blobs  []Blob
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []Descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Config        Descriptor   `json:"config"`
	Layers        []Descriptor `json:"layers"`
}

// maxArchive is the maximum size of an archive in bytes, since it is held in memory.
const maxArchive = 4 << 30

// Read returns an archive's image for this machine's architecture. The archive may be compressed with gzip.
func Read(r io.Reader) (Image, error) {
	files, err := untar(r)
	if err != nil {
		return Image{}, err
	}
	if _, ok := files["index.json"]; ok {
		return readLayout(files)
	}
	if _, ok := files["manifest.json"]; ok {
		return readDocker(files)
	}
	return Image{}, errors.New("neither index.json (an OCI layout) nor manifest.json (docker save) is in it")
}

func untar(r io.Reader) (map[string][]byte, error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("not an archive: %w", err)
	}
	r = io.MultiReader(bytes.NewReader(head), r)
	if head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	}
	files, total := map[string][]byte{}, int64(0)
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("not a tar archive: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if total += h.Size; total > maxArchive {
			return nil, errors.New("larger than 4 GiB")
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(path.Clean(h.Name), "/")] = content
	}
}

func findBlob(files map[string][]byte, d Descriptor) ([]byte, error) {
	algorithm, hash, _ := strings.Cut(d.Digest, ":")
	content, ok := files["blobs/"+algorithm+"/"+hash]
	if !ok {
		return nil, fmt.Errorf("blob %s is missing", d.Digest)
	}
	if digestOf(content) != d.Digest {
		return nil, fmt.Errorf("blob %s is damaged", d.Digest)
	}
	return content, nil
}

func readLayout(files map[string][]byte) (Image, error) {
	content := files["index.json"]
	for range 4 { // an index may contain an index
		var i index
		if err := json.Unmarshal(content, &i); err != nil {
			return Image{}, fmt.Errorf("read an index: %w", err)
		}
		chosen, ok := chooseManifest(i.Manifests)
		if !ok {
			return Image{}, fmt.Errorf("no image for linux/%s in it", runtime.GOARCH)
		}
		var err error
		if content, err = findBlob(files, chosen); err != nil {
			return Image{}, err
		}
		if !strings.Contains(chosen.MediaType, "index") && !strings.Contains(chosen.MediaType, "manifest.list") {
			return assemble(files, chosen, content)
		}
	}
	return Image{}, errors.New("indexes nest too deeply")
}

func chooseManifest(list []Descriptor) (Descriptor, bool) {
	for _, d := range list {
		if d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			return d, true
		}
	}
	return Descriptor{}, false
}

func assemble(files map[string][]byte, target Descriptor, content []byte) (Image, error) {
	var m manifest
	if err := json.Unmarshal(content, &m); err != nil {
		return Image{}, fmt.Errorf("read the manifest: %w", err)
	}
	image := Image{Target: target}
	labels := map[string]string{"containerd.io/gc.ref.content.config": m.Config.Digest}
	for n, d := range append([]Descriptor{m.Config}, m.Layers...) {
		piece, err := findBlob(files, d)
		if err != nil {
			return Image{}, err
		}
		if n > 0 {
			labels[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", n-1)] = d.Digest
		}
		image.Blobs = append(image.Blobs, Blob{Digest: d.Digest, Content: piece})
	}
	if image.Target.MediaType == "" {
		image.Target.MediaType = typeManifest
	}
	image.Blobs = append(image.Blobs, Blob{Digest: target.Digest, Content: content, Labels: labels})
	return image, nil
}

// readDocker converts the content of docker save to an OCI manifest.
func readDocker(files map[string][]byte) (Image, error) {
	var saved []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &saved); err != nil || len(saved) == 0 {
		return Image{}, errors.New("read manifest.json: no image in it")
	}
	add := func(name, mediaType string) (Descriptor, error) {
		content, ok := files[path.Clean(name)]
		if !ok {
			return Descriptor{}, fmt.Errorf("%s is missing", name)
		}
		if mediaType == typeLayer && len(content) > 1 && content[0] == 0x1f && content[1] == 0x8b {
			mediaType += "+gzip"
		}
		d := Descriptor{MediaType: mediaType, Digest: digestOf(content), Size: int64(len(content))}
		files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)] = content
		return d, nil
	}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest}
	var err error
	if m.Config, err = add(saved[0].Config, typeConfig); err != nil {
		return Image{}, err
	}
	for _, l := range saved[0].Layers {
		d, err := add(l, typeLayer)
		if err != nil {
			return Image{}, err
		}
		m.Layers = append(m.Layers, d)
	}
	content, err := json.Marshal(m)
	if err != nil {
		return Image{}, err
	}
	return assemble(files, Descriptor{MediaType: typeManifest, Digest: digestOf(content), Size: int64(len(content))},
		content)
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
