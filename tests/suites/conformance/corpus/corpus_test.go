package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The generated data in the repository is up to date.
func TestTheDataFollowsFromTheSchema(t *testing.T) {
	files, err := generateData(filepath.Join("..", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("..", "testdata", "schema")
	there, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range there {
		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if string(data) != string(files[entry.Name()]) {
			t.Errorf("%s is not what would be written: run go generate ./tests/suites/conformance", entry.Name())
		}
		delete(files, entry.Name())
	}
	for name := range files {
		t.Errorf("%s is missing: run go generate ./tests/suites/conformance", name)
	}
}
