// Package startup shortens the start of kubectl. Tests start it more than a thousand times.
//
// It must be imported by the program that imports k8s.io/kubectl/pkg/cmd. Go initializes packages in the order of their
// paths, so this package comes before those of k8s.io that have translated texts.
package startup

import (
	"runtime/debug"

	"k8s.io/kubectl/pkg/util/i18n"
)

// collectionPercent lets the heap grow to 32 MiB before the first garbage collection. Most commands end earlier.
const collectionPercent = 800

func init() {
	debug.SetGCPercent(collectionPercent)
	// kubectl loads a catalogue of translations whenever it starts, also for English. That is a quarter of its start.
	if err := i18n.SetLoadTranslationsFunc(func() error { return nil }); err != nil {
		panic(err)
	}
}
