// Package check judges what was seen of a cluster while it was being broken: histories of
// the API (is there one order in which all of it makes sense?), watches, requests to a
// workload, and what must hold of objects and containers at any time. Everything here is
// a function of recorded values; recording is the business of tests/chaos.
package check

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what an operation on a key does.
type Kind string

// What clients do with a key.
const (
	Create Kind = "create"
	Get    Kind = "get"
	Update Kind = "update" // guarded by the resource version of Base
	Delete Kind = "delete"
)

// Outcome is what a client was told.
type Outcome string

// What a client can be told. An operation that failed in a way that leaves open whether it
// took place is Unknown; one that certainly did not is left out of the history.
const (
	OK       Outcome = "ok"
	Exists   Outcome = "exists"
	NotFound Outcome = "not found"
	Conflict Outcome = "conflict"
	Unknown  Outcome = "unknown"
)

// Operation is one call and its answer. Values are never written twice.
type Operation struct {
	Client       int
	Key          string
	Kind         Kind
	Base         string // the value that an update was made from
	Value        string // what was written, or what a get returned
	Outcome      Outcome
	Revision     int64 // the resource version of the answer, 0 when there is none
	Call, Return time.Duration
}

func (o Operation) String() string {
	return fmt.Sprintf("%s %s %s base %q value %q: %s at revision %d (%s to %s, client %d)",
		o.Key, o.Kind, "", o.Base, o.Value, o.Outcome, o.Revision, o.Call, o.Return, o.Client)
}

// register is a key: its value, empty when the key is not there, and its resource version
// where that is known.
type register struct {
	value    string
	revision int64 // of the value; 0 when its writer was not told
	least    int64 // every later write has a higher one
}

// step says whether an operation may have its outcome in a state, and what follows.
// A write of unknown outcome takes place where it can; put last, it is seen by nobody.
func (s register) step(o Operation) (bool, register) {
	here := s.value != ""
	if o.Kind == Get {
		switch o.Outcome {
		case NotFound:
			return !here, s
		case OK:
			if s.value != o.Value || !here || s.revision != 0 && s.revision != o.Revision ||
				o.Revision <= s.least && s.revision == 0 {
				return false, s
			}
			return true, register{s.value, o.Revision, o.Revision}
		}
		return true, s
	}
	able := map[Kind]bool{Create: !here, Update: here && s.value == o.Base, Delete: here}[o.Kind]
	next := register{value: o.Value, least: s.least}
	if o.Kind == Delete {
		next.value = ""
	}
	switch o.Outcome {
	case Unknown:
		if able {
			return true, next
		}
		return true, s
	case OK:
		if o.Revision != 0 && o.Kind != Delete {
			if o.Revision <= s.least {
				return false, s
			}
			next.revision, next.least = o.Revision, o.Revision
		}
		return able, next
	case Exists:
		return o.Kind == Create && here, s
	case NotFound:
		return o.Kind != Create && !here, s
	case Conflict:
		return o.Kind == Update && here && s.value != o.Base, s
	}
	return false, s
}

// Linearizable says whether there is, for every key, one order of its operations that agrees
// with their answers and with what was over before something else began. It returns what is
// wrong: a key whose history has no such order, or one that could not be decided in the time.
func Linearizable(history []Operation, limit time.Duration) []string {
	keys := map[string][]porcupine.Operation{}
	var order []string
	for _, o := range history {
		if _, seen := keys[o.Key]; !seen {
			order = append(order, o.Key)
		}
		end := int64(o.Return)
		if o.Outcome == Unknown {
			end = math.MaxInt64
		}
		keys[o.Key] = append(
			keys[o.Key],
			porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Call), Output: o, Return: end},
		)
	}
	model := porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := state.(register).step(input.(Operation))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(register) == b.(register) },
	}
	var findings []string
	deadline := time.Now().Add(limit)
	for _, key := range order {
		left := max(time.Until(deadline), time.Millisecond)
		switch porcupine.CheckOperationsTimeout(model, keys[key], left) {
		case porcupine.Illegal:
			findings = append(
				findings,
				fmt.Sprintf("the answers about %s contradict each other: %s", key, transcript(keys[key])),
			)
		case porcupine.Unknown:
			findings = append(
				findings,
				fmt.Sprintf(
					"whether the %d answers about %s agree could not be decided in %s",
					len(keys[key]),
					key,
					limit,
				),
			)
		}
	}
	return findings
}

func transcript(operations []porcupine.Operation) string {
	text := ""
	for _, o := range operations {
		text += "\n    " + o.Input.(Operation).String()
	}
	return text
}
