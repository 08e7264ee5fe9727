"""The table of advice that errors give. A test checks the command in each text against the CLI."""

from enum import Enum


class Action(Enum):
    """One piece of advice. The value ends an error's message."""

    # A damaged or missing file of an index.
    BUILD_FULL = "restore it or run gnomon build INDEX --full"
    BUILD_FULL_OR_NO_FILTERS = "run gnomon build INDEX --full, or open the index with filters=False"
    BUILD_PAGE_MAPS = "run gnomon build INDEX --page-maps, or open the index with page_maps=False"
    BUILD_SPEC = "run gnomon build INDEX, which writes it again"
    WRITE_VALUES = "restore it or write the folder again with write_btree"
    RESTORE = "restore the file"
    RESTORE_OR_REPAIR = "restore the file, or remove it from the table's metadata by the table's own engine"
    RUN_AGAIN_OR_REPAIR = "run it again; if it stays so, repair the table by its own engine"
    RESTORE_RECORD = "restore the file from a backup: only it says which rows were appended"
    RESTORE_APPEND = "restore either file, or remove the append's record from the index and run gnomon dedup again"

    # The source file is not the indexed one, or the index does not match its source.
    BUILD_FOR_NEW_FILES = "run gnomon build INDEX, which covers new files"
    BUILD_AGAIN = "run gnomon build INDEX again"
    BUILD_OR_TOUCH = "run gnomon build INDEX again; if it finds nothing to do, touch the file first"
    TOUCH = "its size and time are the same, so touch it and run gnomon build INDEX again"
    FRESH_POINTERS = "compute the pointers again from the current files"
    ASK_NEWEST = "query the newest snapshot, and run gnomon build INDEX first where this one is the newest"
    WRITE_SOURCE = "write the file again, or restore it"
    UNPACK = "unpack the file, or give the option whole_file=true"
    NAME_FORMAT = "name the format, as in gnomon build SOURCE INDEX --format csv"
    DECLARE_TYPE = "declare the type that the files have, or write the file again"

    # A run did not finish.
    RUN_AGAIN = "run it again"
    APPEND_BATCH_AGAIN = "run gnomon dedup with that batch again"
    FINISH_APPEND = (
        "run gnomon dedup with that batch on that source, or remove the append's record from the index and append the "
        "batch again"
    )
    BUILD_FIRST = "run gnomon build SOURCE INDEX --key KEY"
    RUN_WHOLE = "run it again when the file is whole"
    NAME_SOURCE = "run gnomon build SOURCE INDEX --key KEY, or gnomon dedup with --source and --key"
    ACCEPT_VANISHED = (
        "mount the disk or list the source again; if the files were deleted on purpose, run gnomon build INDEX "
        "--accept-vanished"
    )
    ACCEPT_OLDER_TABLE = (
        "if the table was put back to an older version on purpose, run gnomon build INDEX --full --accept-vanished"
    )
    ACCEPT_VANISHED_IN_DEDUP = (
        "mount the disk or restore the files; if they were deleted on purpose, run gnomon build INDEX, or gnomon dedup "
        "with --accept-vanished"
    )
    EMPTY_INDEX = "mount the disk; to empty the index, run gnomon build INDEX --full --accept-vanished"
    BUILD_FULL_OR_ELSEWHERE = "run gnomon build INDEX --full, or build to another folder"
    BUILD_ELSEWHERE = "build to another folder"
    DEDUP_NULL_KEYS = "append the batch under another name, or run gnomon dedup with --null-keys dedup"
    UPGRADE = "upgrade gnomon"
    MAKE_TOKEN = "gnomon token NAME prints such a line"

    # The disk or the store.
    FREE_SPACE = "free space there"
    FREE_SPACE_OR_RAISE_QUOTA = "free space there, or raise the quota"
    USE_WRITABLE_DISK = "use a file system that can be written to"
    USE_WRITABLE_FOLDER = "use a folder that this user may write to"
    USE_HARD_LINKS = "use a folder that this user may write to, on a file system with hard links"
    USE_FOLDERS = "use a path in which no folder is a file or a broken link"
    MEND_LINKS = "mend the links of this path"
    LET_READ = "let this user read it"
    RAISE_OPEN_FILES = "raise the limit of open files (ulimit -n)"
    USE_SHORTER_NAME = "use a shorter name"
    RUN_AGAIN_LATER = "run it again when the other runs have finished"
    CHECK_DISK = "check the disk"
    SET_S3_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    SET_GOOGLE_ACCOUNT = "set GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS"
    SET_AZURE_KEYS = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    FETCH_HADOOP_TOKEN = "run kinit and hdfs fetchdt, and set HADOOP_TOKEN_FILE_LOCATION to the file that it writes"
    SET_HADOOP_USER = "set HADOOP_USER_NAME to a user with this permission"
    SET_CLOCK = "set the clock of this machine"
    MAKE_BUCKET = "make the bucket, or correct its name"
    RUN_AGAIN_ANSWERING = "run it again when the store answers"
    TRUST_CERTIFICATE = "set SSL_CERT_FILE to a PEM file of the authority that signed it"
    CHECK_CATALOG_SETTINGS = "check the settings of the catalog, PYICEBERG_CATALOG__NAME__URI and others"
    CHECK_CATALOG_ACCESS = "check the credentials of the catalog, as PYICEBERG_CATALOG__NAME__TOKEN"
    CHECK_CATALOG_RUNS = "check that the catalog runs at this address, and run it again"
    CHECK_SESSION_CATALOG = "check the settings of the session's catalog, and run it again"
    NAME_TABLE = "name a table that the catalog lists"
    CHECK_STORE_SETTINGS = "check the settings of the store"
    MORE_BUCKETS = "run gnomon rebucket INDEX --buckets N with more buckets"

    def __str__(self) -> str:
        return self.value
