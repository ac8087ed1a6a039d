package main

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
)

// digestWriter computes the SHA-256 of everything written through it.
type digestWriter struct {
	to  io.Writer
	sum hash.Hash
}

func newDigestWriter(to io.Writer) *digestWriter { return &digestWriter{to, sha256.New()} }

func (d *digestWriter) Write(b []byte) (int, error) {
	n, err := d.to.Write(b)
	_, _ = d.sum.Write(b[:n]) // never returns an error
	return n, err
}

func (d *digestWriter) hex() string { return hex.EncodeToString(d.sum.Sum(nil)) }
