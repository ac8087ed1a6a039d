// Package store defines the versioned store behind the API server. It has keys and values with one revision for the
// whole store, guarded transactions, and watches that miss no change. It handles bytes; the API server interprets the
// values and controls access. Package etcd is the implementation for clusters. Package memory behaves the same, and one
// test suite (storetest) runs over both.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrCompacted reports that a requested revision is older than what the store keeps.
var ErrCompacted = errors.New("the revision has been compacted")

// ErrFuture reports that a requested revision has not been reached.
var ErrFuture = errors.New("the revision has not been reached")

// ErrTooLarge reports that a transaction is larger than the store accepts.
var ErrTooLarge = errors.New("the transaction is too large")

// ErrUnavailable reports that the store cannot answer at present. A write may have been done nevertheless.
var ErrUnavailable = errors.New("the store does not answer")

// KeyValue is a key with its value. Revision is that of the key's last write.
type KeyValue struct {
	Key      string
	Value    []byte
	Revision int64
	Err      error // an Unreadable: why the value cannot be read; Value is nil then
}

// Unreadable reports a value that exists but cannot be read or decoded. The key is not missing, but its content is
// unknown. The messages are those of upstream's store.
type Unreadable struct {
	Key       string
	Revision  int64  // revision of the key's last write
	Temporary bool   // the value may become readable by itself, because a KMS plugin does not answer at present
	Problem   string // NotTransformable or NotDecodable
	Err       error
}

// These are the values of Unreadable.Problem.
const (
	NotTransformable = "data from the storage is not transformable"
	NotDecodable     = "object not decodable"
)

func (u *Unreadable) Error() string {
	return fmt.Sprintf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
		"%s revision=%d: %v", u.Key, u.Problem, u.Revision, u.Err)
}

// Unwrap returns the underlying error, for package errors.
func (u *Unreadable) Unwrap() error { return u.Err }

// Guard is a condition of a transaction: the key was last written at Revision, or does not exist if Revision is 0.
type Guard struct {
	Key      string
	Revision int64
}

// Put writes a key. With a TTL, the key is removed that long after the write. The store may keep it a twentieth longer.
type Put struct {
	Key   string
	Value []byte
	TTL   time.Duration
}

// Txn is a transaction. It is done completely, at one revision, or not at all.
type Txn struct {
	Guards  []Guard
	Puts    []Put
	Deletes []string
}

// Result is the outcome of a transaction.
type Result struct {
	Done     bool
	Revision int64       // revision of the transaction if Done, otherwise the one at which Current was read
	Current  []*KeyValue // if not Done: the content of each guard's key, nil if it does not exist
}

// Event is a change of one key.
type Event struct {
	Key      string
	Value    []byte // nil if Deleted
	Revision int64
	Deleted  bool
	Err      error // as in KV
}

// Batch is what a watch delivers: whole revisions, in order, each change once. Revision is the revision that the watch
// has reached. A batch without events reports only that.
type Batch struct {
	Events   []Event
	Revision int64
}

// Sized is implemented by stores that know their size.
type Sized interface {
	// Size returns the size of the store's file, in bytes.
	Size(ctx context.Context) (int64, error)
}

// Store is implemented by packages etcd and memory. Keys are ordered by their bytes.
type Store interface {
	// Get returns the key's current value. It returns nil if the key does not exist, and an Unreadable as its error if
	// the value cannot be read. It is linearizable.
	Get(ctx context.Context, key string) (*KeyValue, error)

	// All calls take with all keys that start with prefix, in order and some at a time. They are from one revision, not
	// older than the call, which All returns. take owns the slices.
	All(ctx context.Context, prefix string, take func([]KeyValue) error) (revision int64, err error)

	// Past returns keys that start with prefix and come after the key after, at a revision. It returns at most limit of
	// them, and the number of all of them. An empty after returns the first ones. The error is ErrCompacted or
	// ErrFuture if the revision is not available.
	Past(ctx context.Context, prefix, after string, revision int64, limit int) (kvs []KeyValue, count int64, err error)

	// Commit does t if its guards hold. After an error, it is unknown whether t was done.
	Commit(ctx context.Context, t Txn) (Result, error)

	// Watch calls take with every change below prefix after the given revision. It runs until ctx ends, take returns an
	// error, or the store cannot continue, and returns the reason. take does not own the values, and must copy what it
	// keeps.
	Watch(ctx context.Context, prefix string, after int64, take func(Batch) error) error

	// Progress makes open watches report the revision that they have reached.
	Progress(ctx context.Context) error

	// Revision returns the store's revision. It is linearizable: no write that finished before the call has a higher
	// revision.
	Revision(ctx context.Context) (int64, error)

	// CheckHealth returns nil if the store can do an operation that needs a majority of its members. It reads no keys.
	CheckHealth(ctx context.Context) error

	// Compact discards values that were overwritten before revision.
	Compact(ctx context.Context, revision int64) error
}
