// This file is compiled into cmd/clusterctl with an overlay. It makes a release in which one daemon does not work.
package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// broken is a daemon and the time after which it fails, such as "kube-apiserver 0s". The linker sets it.
var broken string

func init() {
	daemon, after, _ := strings.Cut(broken, " ")
	if filepath.Base(os.Args[0]) != daemon {
		return
	}
	wait, err := time.ParseDuration(after)
	if err != nil {
		panic(err)
	}
	if wait == 0 {
		panic("this release of " + daemon + " cannot start")
	}
	go func() {
		time.Sleep(wait)
		panic("this release of " + daemon + " cannot go on")
	}()
}
