// Package store is the versioned store behind the API server: keys and values with
// one revision for the whole store, guarded transactions, and watches that miss
// nothing. It knows bytes, not objects; what a value means, and who may have it, is
// the API server's business. Package etcd is the real one, package memory behaves
// the same, and one suite (storetest) runs over both.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrCompacted says that a revision asked for is older than what the store keeps.
var ErrCompacted = errors.New("the revision has been compacted")

// ErrFuture says that a revision asked for has not been reached.
var ErrFuture = errors.New("the revision has not been reached")

// ErrTooLarge says that a transaction is larger than the store takes.
var ErrTooLarge = errors.New("the transaction is too large")

// ErrUnavailable says that the store cannot answer at present. What was to be written may have been.
var ErrUnavailable = errors.New("the store does not answer")

// KV is a key with its value. Revision is that of its last write.
type KV struct {
	Key      string
	Value    []byte
	Revision int64
	Err      error // an Unreadable: why the value, which then is nil, cannot be given
}

// Unreadable is that there is a value and that it cannot be given, or that what it holds makes no sense. It is as
// little missing as it is known. Its words are those in which upstream's store says so.
type Unreadable struct {
	Key      string
	Revision int64  // of its last write
	Passing  bool   // whether it will be told when it can be read: who keeps its key does not answer at present
	What     string // NotTransformable or NotDecodable
	Err      error
}

// What is wrong with a value that cannot be read.
const (
	NotTransformable = "data from the storage is not transformable"
	NotDecodable     = "object not decodable"
)

func (u *Unreadable) Error() string {
	return fmt.Sprintf(
		"StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s revision=%d: %v",
		u.Key,
		u.What,
		u.Revision,
		u.Err,
	)
}

// Unwrap implements errors.
func (u *Unreadable) Unwrap() error { return u.Err }

// Guard is what must hold for a transaction to be done: the key was last written at
// Revision, or does not exist when that is 0.
type Guard struct {
	Key      string
	Revision int64
}

// Put writes a key. With a TTL it is removed when that much time has passed since
// the write; the store may let it live a twentieth longer.
type Put struct {
	Key   string
	Value []byte
	TTL   time.Duration
}

// Txn is done whole, at one revision, or not at all.
type Txn struct {
	Guards  []Guard
	Puts    []Put
	Deletes []string
}

// Result is what became of a transaction.
type Result struct {
	Done     bool
	Revision int64 // of the transaction when Done, else of the look at Current
	Current  []*KV // if not Done: what each guard's key holds, nil where it does not exist
}

// Event is a change of one key.
type Event struct {
	Key      string
	Value    []byte // nil when Deleted
	Revision int64
	Deleted  bool
	Err      error // as a KV's
}

// Batch is what a watch delivers: whole revisions in order, every change once.
// Revision says how far the watch has come; a batch without events is only that.
type Batch struct {
	Events   []Event
	Revision int64
}

// Sized is a store that knows how large it is.
type Sized interface {
	// Size returns how many bytes the store's file has.
	Size(ctx context.Context) (int64, error)
}

// Store is implemented by packages etcd and memory. Keys with a common prefix are
// ordered by their bytes.
type Store interface {
	// Get returns nil when there is no such key, and an Unreadable as its error when there is one and its value cannot
	// be given. It is linearizable.
	Get(ctx context.Context, key string) (*KV, error)

	// All hands take all keys that start with prefix, as they were at one revision not before the call, in order and
	// some at a time, and returns that revision. They are take's own.
	All(ctx context.Context, prefix string, take func([]KV) error) (revision int64, err error)

	// Past returns the first keys that start with prefix and come after another, all if that is empty, as they were at
	// a revision, at most limit of them, and how many there are altogether. The revision may be compacted, or not
	// reached.
	Past(ctx context.Context, prefix, after string, revision int64, limit int) (kvs []KV, count int64, err error)

	// Commit does t if its guards hold. An error leaves it open whether it was done.
	Commit(ctx context.Context, t Txn) (Result, error)

	// Watch hands take every change below prefix after the given revision, until ctx ends, take returns an error, or
	// nothing more can be told, and returns why. Values are not take's own: it copies what it keeps.
	Watch(ctx context.Context, prefix string, after int64, take func(Batch) error) error

	// Progress asks for open watches to say soon how far they have come.
	Progress(ctx context.Context) error

	// Revision returns the store's revision, linearizably: no write that was done
	// before the call has a higher one.
	Revision(ctx context.Context) (int64, error)

	// Answers returns nil when the store does what needs a majority of its members. It reads nothing.
	Answers(ctx context.Context) error

	// Compact forgets what was overwritten before revision.
	Compact(ctx context.Context, revision int64) error
}
