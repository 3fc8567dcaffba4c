// Reads a tree, proofs and a note that Muniment made, as JSON from standard input, and judges them with
// golang.org/x/mod/sumdb. It prints what it makes of the same entries, as JSON.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type size struct {
	Size, Index, Old int64
	Root, OldRoot    tlog.Hash
	Inclusion        tlog.RecordProof
	Consistency      tlog.TreeProof
}

type input struct {
	Entries    [][]byte
	Sizes      []size
	Tiles      map[string][]byte
	Note       []byte
	Key        string
	PrivateKey string
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var in input
	must(json.NewDecoder(os.Stdin).Decode(&in))
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, 0, len(indexes))
		for _, at := range indexes {
			found = append(found, hashes[at])
		}
		return found, nil
	})
	for n, entry := range in.Entries {
		more, err := tlog.StoredHashes(int64(n), entry, reader)
		must(err)
		hashes = append(hashes, more...)
	}
	for _, s := range in.Sizes {
		root, err := tlog.TreeHash(s.Size, reader)
		must(err)
		if root != s.Root {
			must(fmt.Errorf("size %d: another root", s.Size))
		}
		must(tlog.CheckRecord(s.Inclusion, s.Size, s.Root, s.Index, tlog.RecordHash(in.Entries[s.Index])))
		must(tlog.CheckTree(s.Consistency, s.Size, s.Root, s.Old, s.OldRoot))
	}
	checked := map[[2]int64][]byte{}
	for path, data := range in.Tiles {
		tile, err := tlog.ParseTilePath(path)
		must(err)
		due, err := tlog.ReadTileData(tile, reader)
		must(err)
		if !bytes.Equal(data, due) {
			must(fmt.Errorf("%s has other bytes", path))
		}
		checked[[2]int64{int64(tile.L), tile.N}] = data
	}
	// Every width that a growing tree ever has: each is the beginning of the tile above.
	for _, tile := range tlog.NewTiles(8, 0, int64(len(in.Entries))) {
		due, err := tlog.ReadTileData(tile, reader)
		must(err)
		if !bytes.HasPrefix(checked[[2]int64{int64(tile.L), tile.N}], due) {
			must(fmt.Errorf("%s is missing", tile.Path()))
		}
	}
	verifier, err := note.NewVerifier(in.Key)
	must(err)
	opened, err := note.Open(in.Note, note.VerifierList(verifier))
	must(err)
	signer, err := note.NewSigner(in.PrivateKey)
	must(err)
	signed, err := note.Sign(&note.Note{Text: opened.Text}, signer)
	must(err)
	must(json.NewEncoder(os.Stdout).Encode(map[string]string{"note": string(signed)}))
}
