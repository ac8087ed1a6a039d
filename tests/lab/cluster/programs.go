package cluster

import (
	"path"
	"path/filepath"

	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/tests/lab/machines"
)

// findPrograms returns the programs of a bundle by their paths on machines. The digests are cached beside the machines'
// root file system.
func findPrograms(dir string) (map[string]string, error) {
	files, err := bundle.Open(filepath.Join(dir, bundle.Clusterctl), filepath.Join(machines.CacheDir, "bundle"))
	if err != nil {
		return nil, err
	}
	programs := map[string]string{}
	for _, name := range bundle.Programs() {
		if name == bundle.Pause { // machines receive it as an image
			continue
		}
		f, err := files.File(name)
		if err != nil {
			return nil, err
		}
		programs[path.Join(host.LibraryDir, f.Digest, f.Name)] = f.Path
	}
	return programs, nil
}
