package check

import (
	"testing"
	"time"
)

// ops makes operations sequential, each of one second.
func ops(list ...Operation) []Operation {
	for i := range list {
		list[i].Key, list[i].Client = "k", i
		if list[i].Return == 0 {
			list[i].Call, list[i].Return = time.Duration(2*i)*time.Second, time.Duration(2*i+1)*time.Second
		}
	}
	return list
}

func TestHistoriesAreRefusedWhenNoOrderExplainsThem(t *testing.T) {
	create := Operation{Kind: Create, Value: "a", Outcome: OK, Revision: 5}
	update := func(base, value string, outcome Outcome, revision int64) Operation {
		return Operation{Kind: Update, Base: base, Value: value, Outcome: outcome, Revision: revision}
	}
	get := func(value string, revision int64) Operation {
		return Operation{Kind: Get, Value: value, Outcome: OK, Revision: revision}
	}
	gone := Operation{Kind: Get, Outcome: NotFound}
	remove := Operation{Kind: Delete, Outcome: OK}
	for name, test := range map[string]struct {
		history []Operation
		good    bool
	}{
		"write and read": {ops(create, get("a", 5), update("a", "b", OK, 6), get("b", 6),
			remove, gone), true},
		"a lost update: two from the same base": {ops(create, update("a", "b", OK, 6), update("a", "c", OK, 7)),
			false},
		"an acknowledged write that is gone":    {ops(create, gone), false},
		"an acknowledged update that is undone": {ops(create, update("a", "b", OK, 6), get("a", 5)), false},
		"a stale read after a newer one": {ops(create, update("a", "b", OK, 6), get("b", 6), get("a", 5)),
			false},
		"a read of what is deleted":         {ops(create, remove, get("a", 5)), false},
		"a conflict without another writer": {ops(create, update("a", "b", Conflict, 0)), false},
		"a conflict after another write": {ops(create, update("a", "b", OK, 6),
			update("a", "c", Conflict, 0)), true},
		"created twice": {ops(create,
			Operation{Kind: Create, Value: "b", Outcome: OK, Revision: 6}), false},
		"exists when it does not":           {ops(Operation{Kind: Create, Value: "b", Outcome: Exists}), false},
		"a value under another revision":    {ops(create, get("a", 6)), false},
		"a write under an older revision":   {ops(create, update("a", "b", OK, 4)), false},
		"an unknown write that is seen":     {ops(create, update("a", "b", Unknown, 0), get("b", 6)), true},
		"an unknown write that is not seen": {ops(create, update("a", "b", Unknown, 0), get("a", 5)), true},
		"an unknown write that is seen and undone": {ops(create, update("a", "b", Unknown, 0), get("b", 6),
			get("a", 5)), false},
		"an unknown write that is seen later": {ops(create, update("a", "b", Unknown, 0), get("a", 5), get("b", 6)),
			true},
		"an unknown deletion": {ops(create, Operation{Kind: Delete, Outcome: Unknown}, get("a", 5),
			gone), true},
		"an unknown write must follow the known": {ops(create, update("a", "b", Unknown, 0), update("a", "c", OK, 6),
			get("b", 7)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if findings := Linearizable(test.history, 10*time.Second); (len(findings) == 0) != test.good {
				t.Errorf("good is %v, findings %v", test.good, findings)
			}
		})
	}
}

func TestReadsBesideAWriteMaySeeEither(t *testing.T) {
	history := []Operation{
		{Key: "k", Kind: Create, Value: "a", Outcome: OK, Revision: 5, Call: 0, Return: 1},
		{Key: "k", Kind: Update, Base: "a", Value: "b", Outcome: OK, Revision: 6, Call: 2, Return: 9},
		{Key: "k", Kind: Get, Value: "a", Outcome: OK, Revision: 5, Call: 3, Return: 4},
		{Key: "k", Kind: Get, Value: "b", Outcome: OK, Revision: 6, Call: 5, Return: 6},
	}
	if findings := Linearizable(history, time.Second); len(findings) > 0 {
		t.Error(findings)
	}
	history[2].Value, history[2].Revision, history[3].Value, history[3].Revision = "b", 6, "a", 5
	if findings := Linearizable(history, time.Second); len(findings) != 1 {
		t.Error("a read that goes back in time was accepted")
	}
}
