package main

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
)

// digest computes the SHA-256 of everything written through it.
type digest struct {
	to  io.Writer
	sum hash.Hash
}

func newDigest(to io.Writer) *digest { return &digest{to, sha256.New()} }

func (d *digest) Write(b []byte) (int, error) {
	n, err := d.to.Write(b)
	_, _ = d.sum.Write(b[:n]) // never returns an error
	return n, err
}

func (d *digest) hex() string { return hex.EncodeToString(d.sum.Sum(nil)) }
