"""The live page: a read-only view of a store in a browser, and the same pages as a static site.

`snapshot` keeps the runs of a store up to date, `curves` computes statistics over seeds, `content` says what each page
shows as plain JSON, `site` renders pages, `server` serves them, `export` writes them to a folder.
"""
