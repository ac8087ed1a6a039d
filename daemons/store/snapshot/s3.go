package snapshot

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"clusterctl/daemons/config/store"
)

// newBucketClient returns a client for the bucket. It verifies the server's certificate with the configured CA file, or
// else with the system's authorities.
func newBucketClient(s *store.S3Bucket) (*minio.Client, error) {
	at, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("read the bucket's endpoint: %w", err)
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CAFile != "" {
		text, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA of the bucket: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the CA of the bucket: %s has no certificate", s.CAFile)
		}
	}
	o := &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey,
			s.Session), Secure: at.Scheme == "https", Region: s.Region, MaxRetries: 4,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			TLSClientConfig:       trust,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 2 * time.Minute,
			IdleConnTimeout:       time.Minute,
			ExpectContinueTimeout: 10 * time.Second,
		},
	}
	o.BucketLookup = minio.BucketLookupAuto
	if s.PathStyle {
		o.BucketLookup = minio.BucketLookupPath
	}
	client, err := minio.New(at.Host, o)
	if err != nil {
		return nil, fmt.Errorf("open the bucket %s at %s: %w", s.Bucket, s.Endpoint, err)
	}
	return client, nil
}

// upload copies a snapshot to the bucket. It writes the database before the record, so that every record has a complete
// database.
func (k *Keeper) upload(ctx context.Context, s store.Snapshot) error {
	client, err := newBucketClient(k.Settings.S3)
	if err != nil {
		return err
	}
	at := path.Join(k.Settings.S3.Prefix, s.Name)
	f, err := os.Open(filepath.Join(k.Settings.Directory, s.Name+databaseSuffix))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	o := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	if _, err := client.PutObject(ctx, k.Settings.S3.Bucket, at+databaseSuffix, f, s.Size, o); err != nil {
		return fmt.Errorf("put %s: %w", at+databaseSuffix, err)
	}
	s.In = nil
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	o.ContentType = "application/json"
	if _, err := client.PutObject(ctx, k.Settings.S3.Bucket, at+recordSuffix, bytes.NewReader(text), int64(len(text)),
		o); err != nil {
		return fmt.Errorf("put %s: %w", at+recordSuffix, err)
	}
	return nil
}

// maxRemote and maxRecordSize limit what a bucket may return: the number of objects, and the size of a record in
// bytes.
const (
	maxRemote     = 10_000
	maxRecordSize = 1 << 20
)

// listBucket lists the snapshots in the bucket, the newest first.
func (k *Keeper) listBucket(ctx context.Context) ([]store.Snapshot, error) {
	client, err := newBucketClient(k.Settings.S3)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing if it is not read to its end
	prefix := k.Settings.S3.Prefix
	if prefix != "" {
		prefix = strings.TrimSuffix(prefix, "/") + "/"
	}
	sizes, records := map[string]int64{}, []string{}
	seen := 0
	for o := range client.ListObjects(ctx, k.Settings.S3.Bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, fmt.Errorf("list the bucket %s: %w", k.Settings.S3.Bucket, o.Err)
		}
		if seen++; seen > maxRemote {
			return nil, fmt.Errorf("list the bucket %s: there are more than %d objects at %q: give snapshots "+
				"a prefix of their own", k.Settings.S3.Bucket, maxRemote, prefix)
		}
		switch name := strings.TrimPrefix(o.Key, prefix); {
		case strings.HasSuffix(name, databaseSuffix):
			sizes[strings.TrimSuffix(name, databaseSuffix)] = o.Size
		case strings.HasSuffix(name, recordSuffix):
			records = append(records, strings.TrimSuffix(name, recordSuffix))
		}
	}
	var all []store.Snapshot
	for _, name := range records {
		if _, whole := sizes[name]; !whole {
			continue
		}
		if !store.IsName(name) {
			continue // not a snapshot
		}
		s, err := k.readBucketRecord(ctx, client, name)
		if err != nil {
			return nil, err
		}
		if s.Size == sizes[name] {
			all = append(all, s)
		}
	}
	sortNewestFirst(all)
	return all, nil
}

func (k *Keeper) readBucketRecord(ctx context.Context, client *minio.Client, name string) (s store.Snapshot,
	err error) {
	o, err := client.GetObject(ctx, k.Settings.S3.Bucket, path.Join(k.Settings.S3.Prefix, name)+recordSuffix,
		minio.GetObjectOptions{})
	if err != nil {
		return s, err
	}
	defer func() { _ = o.Close() }()
	text, err := io.ReadAll(io.LimitReader(o, maxRecordSize))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && s.Name != name {
		err = fmt.Errorf("it is of a snapshot called %q", s.Name)
	}
	if err != nil {
		return s, fmt.Errorf("read %s in the bucket: %w", name+recordSuffix, err)
	}
	s.In = []string{Remote}
	return s, nil
}

// Fetch copies a snapshot from the bucket to a file, and checks it.
func (k *Keeper) Fetch(ctx context.Context, name, file string) (store.Snapshot, error) {
	if k.Settings.S3 == nil {
		return store.Snapshot{}, errors.New("no bucket is declared")
	}
	if !store.IsName(name) {
		return store.Snapshot{}, fmt.Errorf("%q is not the name of a snapshot", name)
	}
	client, err := newBucketClient(k.Settings.S3)
	if err != nil {
		return store.Snapshot{}, err
	}
	want, err := k.readBucketRecord(ctx, client, name)
	if err != nil {
		return want, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return want, err
	}
	if err := checkRoom(filepath.Dir(file), want.Size); err != nil {
		return want, err
	}
	o, err := client.GetObject(ctx, k.Settings.S3.Bucket, path.Join(k.Settings.S3.Prefix, name)+databaseSuffix,
		minio.GetObjectOptions{})
	if err != nil {
		return want, err
	}
	defer func() { _ = o.Close() }()
	partial := file + partialSuffix
	defer func() { _ = os.Remove(partial) }() // after the rename there is nothing to remove
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return want, err
	}
	_, err = io.CopyN(f, o, want.Size)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return want, fmt.Errorf("fetch %s: %w", name, err)
	}
	got, err := Check(partial)
	if err != nil {
		return want, err
	}
	if got.SHA256 != want.SHA256 {
		return want, fmt.Errorf("%w: %s in the bucket is not what was put there: its digest is %s, not %s", ErrDamaged,
			name, got.SHA256, want.SHA256)
	}
	if err := os.Rename(partial, file); err != nil {
		return want, err
	}
	return want, syncDir(filepath.Dir(file))
}

// removeRemote removes snapshots from the bucket, their records first.
func (k *Keeper) removeRemote(ctx context.Context, list []store.Snapshot) error {
	client, err := newBucketClient(k.Settings.S3)
	if err != nil {
		return err
	}
	for _, s := range list {
		for _, end := range []string{recordSuffix, databaseSuffix} {
			if err := client.RemoveObject(ctx, k.Settings.S3.Bucket, path.Join(k.Settings.S3.Prefix, s.Name)+end,
				minio.RemoveObjectOptions{}); err != nil {
				return fmt.Errorf("remove %s from the bucket: %w", s.Name+end, err)
			}
		}
	}
	return nil
}
