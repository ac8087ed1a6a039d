// Command kmsplugin is a KMS plugin for clusters of tests. A file contains the name of its key. Writing another name
// into the file rotates the key.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"clusterctl/tests/programs/kmsplugin/server"
)

func main() {
	socket := flag.String("listen", "", "path of the socket")
	key := flag.String("key-file", "", "file with the ID of the key to encrypt with")
	secret := flag.String("secret", "", "what all keys follow from")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	_ = os.Remove(*socket) // left by a process that was killed
	s := &server.Server{Secret: *secret, Key: func() string {
		text, _ := os.ReadFile(*key) // without the file the key ID is empty, which reports the problem
		return strings.TrimSpace(string(text))
	}}
	if err := s.Serve(ctx, *socket); err != nil {
		fmt.Fprintln(os.Stderr, "kmsplugin:", err)
		os.Exit(1)
	}
}
