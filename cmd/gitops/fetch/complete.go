package fetch

import (
	"context"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// checkComplete returns an error if an object of a commit, or of a tag's commit, was not sent. A commit is cached under
// its ID and never requested again, so that one bad answer would otherwise last.
func checkComplete(ctx context.Context, objects storer.EncodedObjectStorer, wanted plumbing.Hash) error {
	lacks := func(hash plumbing.Hash) error {
		if objects.HasEncodedObject(hash) != nil {
			return fmt.Errorf("the pack lacks %s, which belongs to the commit", hash)
		}
		return nil
	}
	if err := lacks(wanted); err != nil {
		return err
	}
	hash := wanted
	if tag, err := object.GetTag(objects, wanted); err == nil {
		if hash = tag.Target; tag.TargetType != plumbing.CommitObject {
			return nil // it is refused later
		}
	}
	if err := lacks(hash); err != nil {
		return err
	}
	commit, err := object.GetCommit(objects, hash)
	if err != nil {
		return fmt.Errorf("read the commit: %w", err)
	}
	seen := map[plumbing.Hash]bool{commit.TreeHash: true}
	for left := []plumbing.Hash{commit.TreeHash}; len(left) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := left[len(left)-1]
		left = left[:len(left)-1]
		if err := lacks(next); err != nil {
			return err
		}
		tree, err := object.GetTree(objects, next)
		if err != nil {
			return fmt.Errorf("read the folder %s: %w", next, err)
		}
		for _, e := range tree.Entries {
			switch {
			case e.Mode == filemode.Submodule: // its commit is in another repository
			case e.Mode != filemode.Dir:
				if err := lacks(e.Hash); err != nil {
					return err
				}
			case !seen[e.Hash]:
				seen[e.Hash] = true
				left = append(left, e.Hash)
			}
		}
	}
	return nil
}
