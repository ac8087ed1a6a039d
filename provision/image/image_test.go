package image_test

import (
	"bytes"
	"testing"

	"clusterctl/provision/image"
)

func TestWrittenArchivesAreRead(t *testing.T) {
	archive, err := image.Write("amd64", []string{"/pause"},
		image.File{Path: "/pause", Mode: 0o755, Content: []byte("program")})
	if err != nil {
		t.Fatal(err)
	}
	i, err := image.Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Blobs) != 3 || i.Blobs[2].Digest != i.Target.Digest || len(i.Blobs[2].Labels) != 2 {
		t.Errorf("config, layer and manifest expected, got %+v", i.Target)
	}
	again, err := image.Write("amd64", []string{"/pause"},
		image.File{Path: "/pause", Mode: 0o755, Content: []byte("program")})
	if err != nil || !bytes.Equal(archive, again) {
		t.Error("the same files give other bytes")
	}
}

func FuzzRead(f *testing.F) {
	archive, err := image.Write("amd64", nil, image.File{Path: "/a", Content: []byte("a")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(archive)
	f.Add([]byte("not an archive"))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := image.Read(bytes.NewReader(b))
		if err == nil && len(i.Blobs) == 0 {
			t.Error("an image without content")
		}
	})
}
